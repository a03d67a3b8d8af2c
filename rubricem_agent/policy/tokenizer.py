"""Text to tokens and back for a policy with token mode: any byte-level BPE that transformers can load.

Trusted text, the chat template and our own rules, may hold special tokens. Foreign text, the question with its
references and all that tools say, is tokenised with every special token disabled: it cannot become one.
"""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tokenizers import Tokenizer  # type: ignore[import-untyped]

from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.token_bytes import bytes_of, is_byte_level
from rubricem_env.domain.errors import ConfigError

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
