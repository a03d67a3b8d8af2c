"""Token mode: the tokenizer of a policy, one turn as its tokens arrive, and a conversation of ids.

Any byte-level BPE that transformers can load will do, and any SentencePiece vocabulary with byte fallback. The chat
template alone may write control tokens. Every message and all tool output is tokenised with each of them disabled,
whatever it is called, so it cannot become one. A conversation is only appended to and never tokenised again, until its
episode folds it: then a window with a prompt of its own begins, in which the turns that are whole keep their tokens.

Tool output continues the turn of the policy. Only where the policy has ended its turn by itself, it is a message of the
user in the template's own form, and the policy begins a new turn.
"""

import codecs
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer  # type: ignore[import-untyped]

from rubricem_agent.policy.base import Emission, Listener, Opening, TokenSegment, TurnEnd, TurnWatch
from rubricem_agent.policy.chat_template import ApplyTemplate, split_follow_up, split_template
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.env.view import View
from rubricem_env.llm.http_failures import ContextOverflow
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.grammar import DEFAULT, RESERVED
from rubricem_env.scaffold.parser import parse_turn

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_HIDDEN = (byte for byte in range(256) if byte not in _PRINTABLE)
BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {chr(0x100 + index): byte for index, byte in enumerate(_HIDDEN)}
"""The byte of each character in byte-level vocabularies: itself where printable, else from U+0100 on."""
_TAG_OF_SCAFFOLD = re.compile(rf"\s*</?(?:{'|'.join(RESERVED)})\b[^<>]*>?\s*")
_WORDS = re.compile(r"(?:[^\W_]|[\s\u2581])*")


class PolicyTokenizer:
    """The tokenizer of one policy. Safe to share between conversations."""

    def __init__(self, backend: Tokenizer, template: ApplyTemplate, *, end_ids: frozenset[int]) -> None:
        """`end_ids` are the tokens by which the policy ends its turn.

        Raises:
            ConfigError: the vocabulary cannot spell every byte.
        """
        described = json.loads(backend.to_str())
        added = described["added_tokens"]
        described["added_tokens"] = [token for token in added if not _is_control(token)]
        self.end_ids = end_ids
        self._trusted = backend
        self._foreign = Tokenizer.from_str(json.dumps(described))
        self._template = template
        self._token_bytes = _vocabulary_bytes(backend, _level_bytes if _is_byte_level(described) else _fallback_bytes)
        # The model itself may know a control token as a word, and make it of text that spells it.
        letters = {spelt: token_id for token_id, spelt in enumerate(self._token_bytes) if len(spelt) == 1}
        spellings = ((token["id"], self._token_bytes[token["id"]]) for token in added if _is_control(token))
        self._spelt = {
            token_id: [letters[bytes([byte])] for byte in spelt if bytes([byte]) in letters]
            for token_id, spelt in spellings
            if len(spelt) > 1
        }

    @property
    def size(self) -> int:
        return len(self._token_bytes)

    def encode_opening(self, opening: Opening) -> list[int]:
        """The ids up to the first token of the policy.

        Raises:
            ConfigError: the chat template drops or changes the messages.
        """
        before, between, after = map(self._encode_trusted, split_template(self._template))
        system, user = map(self.encode_foreign, (opening.system.strip(), opening.user.strip()))
        return [*before, *system, *between, *user, *after]

    def encode_follow_up(self, text: str, *, has_ended: bool) -> list[int]:
        """The ids of a user's message after a turn that the policy has ended, up to its next token.

        `has_ended`: the token that ends the turn is drawn already, so the template's own is left out. A template that
        has no such message gives the bare text.
        """
        if self._follow_up is None:
            return self.encode_foreign(text)
        before, after = self._follow_up
        ended = next((at for at, token_id in enumerate(before, 1) if token_id in self.end_ids), 0) if has_ended else 0
        return [*before[ended:], *self.encode_foreign(text.strip()), *after]

    @cached_property
    def _follow_up(self) -> tuple[list[int], list[int]] | None:
        parts = split_follow_up(self._template)
        return None if parts is None else (self._encode_trusted(parts.before), self._encode_trusted(parts.after))

    def encode_foreign(self, text: str) -> list[int]:
        """Ids of a message or of tool text; it never becomes a control token."""
        ids: list[int] = self._foreign.encode(text, add_special_tokens=False).ids
        if self._spelt.keys().isdisjoint(ids):
            return ids
        return [letter for token_id in ids for letter in self._spelt.get(token_id, (token_id,))]

    def count(self, text: str) -> int:
        return len(self.encode_foreign(text))

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of a token; none for ids without a token, such as padding of the embedding matrix."""
        return self._token_bytes[token_id] if token_id < len(self._token_bytes) else b""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens spelt out."""
        return b"".join(self.token_bytes(token_id) for token_id in ids).decode("utf-8", "replace")

    def _encode_trusted(self, text: str) -> list[int]:
        return list(self._trusted.encode(text, add_special_tokens=False).ids)


def _is_control(token: Mapping[str, Any]) -> bool:
    """Whether text may not become this added token: it is special, or neither words nor a tag of the scaffold.

    Tags that a policy was taught as one token stay: fine-tuning and every server read the frame of an observation with
    them, and foreign text has its own tags neutralized.
    """
    content = token["content"]
    return token["special"] or not (_WORDS.fullmatch(content) or _TAG_OF_SCAFFOLD.fullmatch(content))


def _is_byte_level(described: Mapping[str, Any]) -> bool:
    """Whether tokens are decoded as byte-level BPE. Some conversions call such a vocabulary one with byte fallback."""
    decoder = described["decoder"] or {"type": ""}
    kinds = {part["type"] for part in decoder.get("decoders", [decoder])}
    return "ByteLevel" in kinds or not described["model"].get("byte_fallback")


def _level_bytes(written: str) -> bytes | None:
    """The bytes of a token of byte-level BPE, or None."""
    return bytes(BYTE_OF[char] for char in written) if all(char in BYTE_OF for char in written) else None


def _fallback_bytes(written: str) -> bytes:
    """The bytes of a token of SentencePiece: one byte as <0xNN>, else text with U+2581 for a space."""
    byte = re.fullmatch(r"<0x([0-9A-F]{2})>", written)
    return bytes([int(byte[1], 16)]) if byte else written.replace("\u2581", " ").encode()


def _vocabulary_bytes(backend: Tokenizer, bytes_of: Callable[[str], bytes | None]) -> tuple[bytes, ...]:
    added = {token_id: token.content for token_id, token in backend.get_added_tokens_decoder().items()}
    size = max(backend.get_vocab(with_added_tokens=True).values()) + 1
    every: list[bytes] = []
    for token_id in range(size):
        written = backend.id_to_token(token_id) or ""
        if token_id in added:
            every.append(added[token_id].encode())
        elif (content := bytes_of(written)) is not None:
            every.append(content)
        else:
            raise ConfigError(
                f"token {token_id} of the tokenizer is {written!r}, which is not byte-level BPE. Token mode needs a "
                "byte-level tokenizer, such as Qwen's, or one with byte fallback, such as Gemma's; serve other models "
                "and use openai:MODEL@URL."
            )
    return tuple(every)


class TokenTurn(TurnWatch):
    """One turn as it is drawn, token by token; tells when to stop.

    A character that spans several tokens appears with its last one. Bytes that are not UTF-8 become U+FFFD, as in the
    tokenizers' own decoders.
    """

    def __init__(self, tokenizer: PolicyTokenizer, listener: Listener, scaffold: Scaffold = DEFAULT) -> None:
        super().__init__(listener, scaffold)
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.starts: list[int] = []
        """The character of the turn at which each token begins."""
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, token_id: int, logprob: float) -> TurnEnd | None:
        """Append a token; why the turn is over after it, or None."""
        self.ids.append(token_id)
        self.logprobs.append(logprob)
        self.starts.append(len(self.text))
        if token_id in self._tokenizer.end_ids:
            self.end = "stopped"
        elif new := self._decoder.decode(self._tokenizer.token_bytes(token_id)):
            self.write(new)
        return self.end

    def close(self) -> None:
        """Decode the last bytes: no further token comes."""
        rest = self._decoder.decode(b"", final=True)
        if rest:
            self.text += rest
            self._listener.wrote(rest)


class TokenConversation:
    """The ids of one episode. A subclass draws the tokens of a turn."""

    def __init__(
        self,
        tokenizer: PolicyTokenizer,
        prompt_ids: Sequence[int],
        *,
        max_length: int,
        scaffold: Scaffold = DEFAULT,
    ) -> None:
        """`max_length` is the most tokens of the whole conversation, or of each of its windows."""
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.scaffold = scaffold
        self._opening = list(prompt_ids)
        self._ids = list(prompt_ids)
        """Of the window: what the policy reads."""
        self._pieces = [TokenSegment(tuple(prompt_ids))]
        self._turns: list[list[int]] = []
        """The ids of each turn with what was read after it."""
        self._is_turn_over = False
        """Whether the policy ended its last turn by itself."""

    @property
    def pieces(self) -> tuple[TokenSegment, ...]:
        return tuple(self._pieces)

    async def draw(self, ids: Sequence[int], turn: TokenTurn, *, max_tokens: int) -> Usage:
        """Draw tokens after `ids` and pass each to `turn`, until the turn is over or `max_tokens` are drawn.

        Between calls `ids` only grows, except that tokens may be removed from the end of the last turn, and that a fold
        keeps of them the opening alone.

        Raises:
            ModelError: the engine failed.
        """
        raise NotImplementedError

    async def emit(self, *, max_tokens: int, listener: Listener) -> Emission:
        """Draw a turn; the tokens up to the one that completes the action are kept.

        Raises:
            ContextOverflow: not one more token fits.
        """
        room = self.max_length - len(self._ids)
        if room <= 0:
            raise ContextOverflow(
                f"the conversation has {len(self._ids)} tokens and the policy reads {self.max_length}."
            )
        turn = TokenTurn(self.tokenizer, listener, self.scaffold)
        usage = await self.draw(self._ids, turn, max_tokens=min(max_tokens, room))
        turn.close()
        self._keep(turn)
        self._is_turn_over = turn.end == "stopped"
        return Emission(turn.text, turn.end or "length", usage)

    def observe(self, text: str) -> None:
        """Append foreign text, tokenised apart: its first token never merges with the policy's last one.

        Within a turn it is the bare text. After a turn that the policy ended it is a message of the user.
        """
        ids = self._encode_read(text)
        self._ids += ids
        self._pieces.append(TokenSegment(tuple(ids)))

    def fold(self, view: View) -> None:
        """Begin a window: what is folded is tokenised as foreign text, whoever wrote it."""
        self._encode_read(view.turns[-1].observation)
        self._ids = list(self._opening)
        for turn in view.turns:
            if turn.is_whole:
                self._ids += self._turns[turn.number - 1]
            else:
                self._ids += self.tokenizer.encode_foreign(turn.text)
                self._ids += self.tokenizer.encode_foreign(turn.observation)
        self._pieces.append(TokenSegment(tuple(self._ids), begins_window=True))

    def _encode_read(self, text: str) -> list[int]:
        """The ids of what is read after the last turn."""
        if self._is_turn_over:
            has_ended = bool(self._turns[-1]) and self._turns[-1][-1] in self.tokenizer.end_ids
            ids = self.tokenizer.encode_follow_up(text, has_ended=has_ended)
            self._is_turn_over = False
        else:
            ids = self.tokenizer.encode_foreign(text)
        self._turns[-1] += ids
        return ids

    def close(self) -> None:
        """Free what the conversation holds; here nothing."""

    def _keep(self, turn: TokenTurn) -> None:
        """Truncate the tokens as the episode truncates the text. A token across that point is kept whole."""
        text = turn.text
        starts = turn.starts
        kept = parse_turn(text, scaffold=self.scaffold).end
        # Tokens that begin at the very end, such as the one that ends the turn, add no text: nothing is truncated.
        count = len(starts) if kept == len(text) else sum(start < kept for start in starts)
        until = starts[count] if count < len(starts) else len(text)
        self._ids += turn.ids[:count]
        self._turns.append(turn.ids[:count])
        self._pieces.append(
            TokenSegment(
                tuple(turn.ids[:count]),
                True,
                tuple(turn.logprobs[:count]),
                starts=tuple(starts[:count]),
                overhang=text[kept:until] if count else "",
            )
        )
