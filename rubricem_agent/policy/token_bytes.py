"""What each token of a byte-level vocabulary says, in bytes, and where in the text each token of a turn begins."""

import codecs
from collections.abc import Sequence

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))


def _byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in byte-level vocabularies: itself where printable, else from U+0100 on."""
    hidden = [byte for byte in range(256) if byte not in _PRINTABLE]
    return {chr(byte): byte for byte in _PRINTABLE} | {chr(0x100 + place): byte for place, byte in enumerate(hidden)}


BYTE_OF = _byte_alphabet()


def is_byte_level(written: str) -> bool:
    """Whether a vocabulary entry is written in the byte alphabet."""
    return all(char in BYTE_OF for char in written)


def bytes_of(written: str) -> bytes:
    """The bytes of a vocabulary entry."""
    return bytes(BYTE_OF[char] for char in written)


class TurnText:
    """The text of one turn as its tokens arrive. A character that spans tokens appears with its last one.

    Bytes that are no UTF-8 become U+FFFD, as the tokenizers' own decoders have it.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self._size = 0
        self._starts: list[int] = []

    @property
    def starts(self) -> Sequence[int]:
        """The character in which each token begins, counted from the start of the turn."""
        return self._starts

    @property
    def text(self) -> str:
        """What is complete so far."""
        return "".join(self._pieces)

    def feed(self, token: bytes) -> str:
        """Take the next token; the text that it completes."""
        self._starts.append(self._size)
        return self._keep(self._decoder.decode(token))

    def close(self) -> str:
        """The turn is over: what the last bytes amount to."""
        return self._keep(self._decoder.decode(b"", final=True))

    def _keep(self, piece: str) -> str:
        self._pieces.append(piece)
        self._size += len(piece)
        return piece
