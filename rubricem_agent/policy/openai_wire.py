"""The bodies and events of OpenAI's streaming API, with what vLLM adds to it; only what is needed of them is read."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, ValidationError

from rubricem_agent.policy.text_conversation import Delta
from rubricem_env.llm.base import Finish, PassingModelError
from rubricem_env.llm.usage import Usage

_FINISH: Mapping[str, Finish] = MappingProxyType(
    {"stop": Finish.STOP, "length": Finish.LENGTH, "content_filter": Finish.BLOCKED}
)
_OVERFLOW = ("context_length_exceeded", "maximum context length", "max_model_len", "context window", "context size")


class _Loose(BaseModel):
    """Servers add fields of their own; only ours are read."""

    model_config = ConfigDict(extra="ignore")


class _Content(_Loose):
    content: str | None = None


class _Logprobs(_Loose):
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(_Loose):
    text: str | None = None
    token_ids: list[int] | None = None
    """vLLM, asked for them."""
    logprobs: _Logprobs | None = None
    delta: _Content | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    """vLLM: the stop string that ended it."""


class _Cached(_Loose):
    cached_tokens: int | None = None


class _Tokens(_Loose):
    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: _Cached | None = None


class _Event(_Loose):
    choices: list[_Choice] = []
    usage: _Tokens | None = None
    error: dict[str, object] | None = None


class _Model(_Loose):
    id: str
    owned_by: str = ""
    max_model_len: int | None = None


class Models(_Loose):
    """The answer to GET models."""

    data: list[_Model] = []

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(model.id for model in self.data)

    def is_vllm(self, name: str) -> bool:
        return any(model.id == name and model.owned_by == "vllm" for model in self.data)

    def vllm_length(self, name: str) -> int:
        """The tokens that a model of vLLM reads; 0 where it is none."""
        lengths = (model.max_model_len or 0 for model in self.data if model.id == name and model.owned_by == "vllm")
        return max(lengths, default=0)


class Tokenized(_Loose):
    """vLLM's answer to POST tokenize."""

    tokens: list[int]


class Detokenized(_Loose):
    """vLLM's answer to POST detokenize."""

    prompt: str


class Completion(_Loose):
    """A plain answer to POST completions."""

    choices: list[_Choice] = []

    @property
    def top_logprobs(self) -> tuple[float, ...]:
        """Of the alternatives to the first token."""
        logprobs = self.choices[0].logprobs if self.choices else None
        first = logprobs.top_logprobs[0] if logprobs and logprobs.top_logprobs else None
        return tuple((first or {}).values())


def says_overflow(body: str) -> bool:
    """Whether a refusal speaks of the length of the context."""
    lowered = body.lower()
    return any(phrase in lowered for phrase in _OVERFLOW)


async def read_events(lines: AsyncIterator[str]) -> AsyncGenerator[Delta, None]:
    """The pieces of a server-sent stream of completions or chat chunks, up to its end mark.

    Raises:
        PassingModelError: an event is broken or reports an error, or the stream breaks off before its end mark.
    """
    async for line in lines:
        if not line.startswith("data:"):
            continue
        content = line.removeprefix("data:").strip()
        if content == "[DONE]":
            return
        yield _delta(content)
    raise PassingModelError("the stream broke off before its end")


def _delta(content: str) -> Delta:
    try:
        event = _Event.model_validate_json(content)
    except ValidationError as failure:
        raise PassingModelError("the server streamed what is no completion") from failure
    if event.error is not None:
        raise PassingModelError(f"the server broke off: {str(event.error.get('message', 'no message'))[:500]}")
    choice = event.choices[0] if event.choices else _Choice()
    text = choice.text if choice.text is not None else (choice.delta.content if choice.delta else None)
    finish = _FINISH.get(choice.finish_reason, Finish.OTHER) if choice.finish_reason else None
    logprobs = (choice.logprobs.token_logprobs or []) if choice.logprobs else []
    return Delta(
        text or "",
        _usage(event.usage),
        finish,
        isinstance(choice.stop_reason, str),
        ids=tuple(choice.token_ids or ()),
        logprobs=tuple(logprob for logprob in logprobs if logprob is not None),
    )


def _usage(tokens: _Tokens | None) -> Usage | None:
    if tokens is None:
        return None
    cached = tokens.prompt_tokens_details.cached_tokens if tokens.prompt_tokens_details else None
    return Usage(
        calls=1,
        input_tokens=tokens.prompt_tokens,
        cached_tokens=cached or 0,
        output_tokens=tokens.completion_tokens or 0,
    )
