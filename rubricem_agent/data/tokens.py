"""A sample as token ids with a loss mask. The chat template and the tokenizer decide the ids; the spans decide the loss.

The assistant's message never goes through the template: Qwen3's keeps of an answer with several thoughts only what
follows the last one. The template renders the prompt, and how an answer ends is read off it.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rubricem_agent.data.chatml import ChatSample
from rubricem_env.domain.errors import ConfigError

_PROBE = "\u2063probe\u2063"


class Encoding(Protocol):
    """What a tokenizer returns."""

    @property
    def input_ids(self) -> list[int]: ...


class ChatTokenizer(Protocol):
    """What is needed of a transformers tokenizer."""

    @property
    def eos_token_id(self) -> int | None: ...

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str: ...

    def __call__(self, text: str, *, add_special_tokens: bool, split_special_tokens: bool) -> Encoding: ...


class TokenSample(NamedTuple):
    """Token ids of a whole conversation."""

    ids: list[int]
    has_loss: list[bool]
    """For each id whether it is to be learnt: the policy's own, and the token that ends its message."""


def encode_sample(sample: ChatSample, tokenizer: ChatTokenizer) -> TokenSample:
    """The ids of a sample. Every piece is encoded apart, so that no token spans two authors.

    In the pieces special tokens are plain text, whoever wrote them: only the template writes real ones.

    Raises:
        ConfigError: the chat template does not end an assistant's message with the tokenizer's end token.
    """
    conversation = [message.model_dump() for message in sample.messages]
    prompt = tokenizer.apply_chat_template(conversation[:2], tokenize=False, add_generation_prompt=True)
    ids = _encode(tokenizer, prompt, specials=True)
    has_loss = [False] * len(ids)
    for piece in sample.pieces:
        piece_ids = _encode(tokenizer, piece.text, specials=False)
        ids += piece_ids
        has_loss += [piece.is_policy] * len(piece_ids)
    ending = closing_ids(tokenizer, conversation)
    return TokenSample(ids + ending, has_loss + [True] * len(ending))


def closing_ids(tokenizer: ChatTokenizer, conversation: Sequence[dict[str, str]]) -> list[int]:
    """What the template puts after an answer, up to and with the end token."""
    probed = [*conversation[:2], {"role": "assistant", "content": _PROBE}]
    rendered = tokenizer.apply_chat_template(probed, tokenize=False, add_generation_prompt=False)
    ids = _encode(tokenizer, rendered.rpartition(_PROBE)[2], specials=True)
    if tokenizer.eos_token_id not in ids:
        raise ConfigError(
            "the chat template ends an answer without the tokenizer's end token; a model trained so would never "
            "stop. Set the tokenizer's eos_token to the template's, such as <|im_end|>."
        )
    return ids[: ids.index(tokenizer.eos_token_id) + 1]


def _encode(tokenizer: ChatTokenizer, text: str, *, specials: bool) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, split_special_tokens=not specials).input_ids)
