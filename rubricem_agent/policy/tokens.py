"""What each token of a byte-level vocabulary says, in bytes, and where in the text each token of a turn begins.

Text to tokens and back for a policy with token mode: any byte-level BPE that transformers can load.

Trusted text, the chat template and our own rules, may hold special tokens. Foreign text, the question with its
references and all that tools say, is tokenised with every special token disabled: it cannot become one.

A conversation in tokens: ids in, ids and log-probabilities out, only ever appended to, never tokenised again.
"""

import codecs
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tokenizers import Tokenizer  # type: ignore[import-untyped]

from rubricem_agent.policy.base import (
    ContextOverflow,
    Emission,
    Listener,
    Opening,
    TokenSegment,
    TurnEnd,
    TurnWatch,
    kept_length,
)
from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.usage import Usage

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


ApplyTemplate = Callable[[Opening], str]
"""Renders system and user message up to where the assistant begins."""

_SYSTEM, _USER = "\ue000system\ue001", "\ue000user\ue001"
"""Characters of the private use area, which stand in a template for what is put there afterwards."""


class TokenizerParts(NamedTuple):
    """What a tokenizer is made of."""

    backend: Tokenizer
    template: ApplyTemplate
    end_ids: frozenset[int]
    """Tokens by which the policy ends its turn."""


class PolicyTokenizer:
    """The tokenizer of one policy. Safe to share between conversations."""

    def __init__(self, parts: TokenizerParts, foreign: Tokenizer, *, token_bytes: Sequence[bytes]) -> None:
        self.end_ids = parts.end_ids
        self._trusted = parts.backend
        self._foreign = foreign
        self._template = parts.template
        self._token_bytes = token_bytes

    @classmethod
    def of(cls, parts: TokenizerParts) -> "PolicyTokenizer":
        """From its parts.

        Raises:
            ConfigError: the vocabulary is not byte-level, or the chat template loses what is put in.
        """
        described = json.loads(parts.backend.to_str())
        # Added tokens that are not special, such as tags that a policy was taught as one token, stay: fine-tuning and
        # every server read the frame of an observation with them, and foreign text has its own tags defused.
        described["added_tokens"] = [token for token in described["added_tokens"] if not token["special"]]
        foreign = Tokenizer.from_str(json.dumps(described))
        return cls(parts, foreign, token_bytes=_all_bytes(parts.backend))

    @property
    def size(self) -> int:
        return len(self._token_bytes)

    def encode_opening(self, opening: Opening) -> list[int]:
        """The ids up to where the policy begins to write.

        Raises:
            ConfigError: the chat template drops or changes the messages.
        """
        rendered = self._template(Opening(_SYSTEM, _USER))
        before, system, rest = rendered.partition(_SYSTEM)
        between, user, after = rest.partition(_USER)
        if not (system and user):
            raise ConfigError("the chat template does not show the system and the user message; use one that does.")
        ids = self._encode_trusted(before + opening.system.strip() + between)
        return [*ids, *self.encode_foreign(opening.user.strip()), *self._encode_trusted(after)]

    def encode_foreign(self, text: str) -> list[int]:
        """Ids of text that is not ours: no special token, whatever it spells."""
        return list(self._foreign.encode(text, add_special_tokens=False).ids)

    def count(self, text: str) -> int:
        return len(self.encode_foreign(text))

    def token_bytes(self, token_id: int) -> bytes:
        """What a token says; nothing for ids that stand for no token, such as padding of the embedding matrix."""
        return self._token_bytes[token_id] if token_id < len(self._token_bytes) else b""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens spelt out."""
        return b"".join(self.token_bytes(token_id) for token_id in ids).decode("utf-8", "replace")

    def _encode_trusted(self, text: str) -> list[int]:
        return list(self._trusted.encode(text, add_special_tokens=False).ids)


def _all_bytes(backend: Tokenizer) -> tuple[bytes, ...]:
    added = {token_id: token.content for token_id, token in backend.get_added_tokens_decoder().items()}
    size = max(backend.get_vocab(with_added_tokens=True).values()) + 1
    every: list[bytes] = []
    for token_id in range(size):
        written = backend.id_to_token(token_id) or ""
        if token_id in added:
            every.append(added[token_id].encode())
        elif is_byte_level(written):
            every.append(bytes_of(written))
        else:
            raise ConfigError(
                f"token {token_id} of the tokenizer is {written!r}, which is not byte-level BPE. Token mode needs a "
                "byte-level tokenizer, such as Qwen's; serve other models and use openai:MODEL@URL."
            )
    return tuple(every)


class TokenDraw(NamedTuple):
    """One token as the policy drew it."""

    id: int
    logprob: float


class TokenTurn:
    """One turn as it is drawn, token by token; says when to stop."""

    def __init__(self, tokenizer: PolicyTokenizer, listener: Listener) -> None:
        self._tokenizer = tokenizer
        self._listener = listener
        self._watch = TurnWatch()
        self.written = TurnText()
        self.draws: list[TokenDraw] = []
        self.end: TurnEnd | None = None

    def take(self, draw: TokenDraw) -> TurnEnd | None:
        """Append a token; why the turn is over after it, or None."""
        self.draws.append(draw)
        if draw.id in self._tokenizer.end_ids:
            self.written.feed(b"")
            self.end = TurnEnd.STOPPED
            return self.end
        piece = self.written.feed(self._tokenizer.token_bytes(draw.id))
        if piece:
            self._listener.wrote(piece)
            self.end = self._watch.feed(piece)
        return self.end

    def close(self) -> None:
        """No further token comes."""
        rest = self.written.close()
        if rest:
            self._listener.wrote(rest)


class TokenEngine(Protocol):
    """What draws tokens after given ids."""

    @property
    def tokenizer(self) -> PolicyTokenizer: ...

    @property
    def max_length(self) -> int:
        """Tokens that a conversation can have in all."""
        ...

    async def draw(self, ids: Sequence[int], turn: TokenTurn, *, max_tokens: int) -> Usage:
        """Draw tokens after `ids` and hand each to `turn`, until it says that it is over or `max_tokens` are drawn.

        Between calls `ids` only grows, except that tokens of the last turn may have been taken back from its end.

        Raises:
            ModelError: the engine failed.
        """
        ...

    def release(self) -> None:
        """Give back what is held for the conversation."""
        ...


class TokenConversation:
    """The ids of one episode."""

    def __init__(self, engine: TokenEngine, prompt_ids: Sequence[int]) -> None:
        self._engine = engine
        self._ids = list(prompt_ids)
        self._pieces = [TokenSegment(tuple(prompt_ids))]

    @classmethod
    def begin(cls, engine: TokenEngine, opening: Opening) -> "TokenConversation":
        """With the opening's ids."""
        return cls(engine, engine.tokenizer.encode_opening(opening))

    @property
    def pieces(self) -> tuple[TokenSegment, ...]:
        return tuple(self._pieces)

    async def emit(self, *, max_tokens: int, listener: Listener) -> Emission:
        """Draw a turn; the tokens up to and with the one that completes the action are kept.

        Raises:
            ContextOverflow: no token fits any more.
        """
        room = self._engine.max_length - len(self._ids)
        if room <= 0:
            raise ContextOverflow(
                f"the conversation has {len(self._ids)} tokens and the policy reads {self._engine.max_length}."
            )
        turn = TokenTurn(self._engine.tokenizer, listener)
        usage = await self._engine.draw(self._ids, turn, max_tokens=min(max_tokens, room))
        turn.close()
        self._keep(turn)
        return Emission(turn.written.text, turn.end or TurnEnd.LENGTH, usage)

    def observe(self, text: str) -> None:
        """Append foreign text, tokenised apart: its first token never merges with the policy's last one."""
        ids = self._engine.tokenizer.encode_foreign(text)
        self._ids += ids
        self._pieces.append(TokenSegment(tuple(ids)))

    def close(self) -> None:
        self._engine.release()

    def _keep(self, turn: TokenTurn) -> None:
        """Cut in tokens what the episode cuts in text. A token that straddles the cut is kept with its overhang."""
        text, starts = turn.written.text, turn.written.starts
        kept = kept_length(text)
        # Tokens that begin at the very end, such as the one that ends the turn, say nothing beyond it: nothing was cut.
        count = len(starts) if kept == len(text) else sum(start < kept for start in starts)
        until = starts[count] if count < len(starts) else len(text)
        draws = turn.draws[:count]
        self._ids += [draw.id for draw in draws]
        ids, logprobs = tuple(draw.id for draw in draws), tuple(draw.logprob for draw in draws)
        piece = TokenSegment(
            ids, True, logprobs, starts=tuple(starts[:count]), overhang=text[kept:until] if draws else ""
        )
        self._pieces.append(piece)
