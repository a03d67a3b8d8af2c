"""A completion of OpenAI's API, or one event of its stream, as JSON."""

from collections.abc import Mapping
from typing import Any

from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field

from rubricem_env.domain.base import Count
from rubricem_env.llm.chat import Finish
from rubricem_env.llm.usage import Usage
from rubricem_env.llm.wires.wire import raise_reported

_FINISH: Mapping[str, Finish] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "stop_sequence", "end_turn"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "model_length"), "length"),
    "content_filter": "blocked",
}
"""The ends of a reply, as OpenAI writes them, and as other servers do."""


def _at(*places: str) -> Any:
    """A field that stands at the first of these places in a reply, such as "choices.0.text"."""
    paths = [[int(part) if part.isdigit() else part for part in place.split(".")] for place in places]
    return Field(None, validation_alias=AliasChoices(*(AliasPath(str(path[0]), *path[1:]) for path in paths)))


class WireReply(BaseModel):
    """The first choice and the token counts of a completion, or of one event of a stream; all else is ignored."""

    model_config = ConfigDict(extra="ignore")

    choices: list[Any] | None = None
    model: str | None = None
    error: Any = None
    text: str | None = _at("choices.0.text", "choices.0.message.content", "choices.0.delta.content")
    finish_reason: str | None = _at("choices.0.finish_reason")
    refusal: Any = _at("choices.0.message.refusal", "choices.0.delta.refusal")
    thought: Any = _at(
        "choices.0.delta.reasoning_content",
        "choices.0.delta.reasoning",
        "choices.0.message.reasoning_content",
        "choices.0.message.reasoning",
    )
    """The reasoning, from servers that keep it apart from the text."""
    stop_reason: str | int | None = _at("choices.0.stop_reason")
    """The stop string that ended the text. vLLM sends it."""
    token_ids: list[int] | None = _at("choices.0.token_ids")
    """vLLM, when the request asks for them."""
    token_logprobs: list[float | None] | None = _at("choices.0.logprobs.token_logprobs")
    top_logprobs: list[dict[str, float] | None] | None = _at("choices.0.logprobs.top_logprobs")
    counts: dict[str, Any] | None = _at("usage")
    input_tokens: Count | None = _at("usage.prompt_tokens")
    output_tokens: Count | None = _at("usage.completion_tokens")
    cached_tokens: Count | None = _at("usage.prompt_tokens_details.cached_tokens")
    reasoning_tokens: Count | None = _at("usage.completion_tokens_details.reasoning_tokens")

    @property
    def finish(self) -> Finish | None:
        """Why the text ends; None while it does not say."""
        if self.refusal:
            return "blocked"
        return _FINISH.get(self.finish_reason, "other") if self.finish_reason else None

    @property
    def usage(self) -> Usage | None:
        """The tokens of the call; None where the server does not report them."""
        if self.counts is None:
            return None
        return Usage(
            calls=1,
            input_tokens=self.input_tokens or 0,
            cached_tokens=self.cached_tokens or 0,
            output_tokens=self.output_tokens or 0,
            reasoning_tokens=self.reasoning_tokens or 0,
        )


def read_completion(content: Any) -> WireReply:
    reply = WireReply.model_validate(content)
    raise_reported(reply.error, "answered with an error")
    if not reply.choices:
        raise ValueError("no choices")
    return reply
