"""A chat model as a service: its request, its reply, and the protocol of a model."""

from typing import Literal, NamedTuple, Protocol

from pydantic import BaseModel

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.llm.thoughts import THOUGHT, has_visible_text
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.folding import fold

Finish = Literal["stop", "length", "blocked", "other"]
"""Why a reply ends.

The model ended it, the token limit was reached, the server refused, or anything else, such as an abort.
"""


Effort = Literal["", "none", "minimal", "low", "medium", "high", "xhigh"]
"""How much a reasoning model thinks before it replies; empty leaves it to the provider. Not every model has each."""


class ChatRequest(NamedTuple):
    """One question to a model."""

    prompt: str
    system: str = ""
    schema: type[BaseModel] | None = None
    """The shape of the JSON reply; None asks for plain text. It is sent to the server; replies are still validated."""
    purpose: str = "chat"
    """The phase that its cost is booked under."""
    temperature: float | None = 0.0
    """None leaves it to the server, as with `seed` and `top_p`."""
    max_output_tokens: int = 8192
    seed: int | None = None
    top_p: float | None = None
    effort: Effort = ""


ABORTED = "the server ended the reply before the model did"


class ChatReply(Frozen):
    """What came back."""

    text: Text
    model: Text
    """The name of the model, as the server gives it."""
    usage: Usage = Usage(calls=1)
    finish: Finish = "stop"
    thought: Text = ""
    """The model's reasoning, where the server sends it apart from the text. Nobody reads an answer from it."""

    @property
    def outage(self) -> str:
        """Why this is a failure of the server and no answer of the model; empty where the text can be read."""
        if self.finish == "blocked":
            return "the server blocked the reply"
        if self.finish == "other":
            return ABORTED
        shown = fold(self.text)
        thought = THOUGHT.match(shown)
        if has_visible_text(shown[thought.end() if thought else 0 :]):
            return ""
        said = "only a thought" if thought else "empty"
        return f"the reply is {said}{' at its token limit' if self.finish == 'length' else ''}"


class Delta(NamedTuple):
    """The next part of a streamed reply."""

    text: str = ""
    usage: Usage | None = None
    """The usage of this stream so far, where the server reports it."""
    finish: Finish | None = None
    at_stop_string: bool = False
    """The stream ended at one of our stop strings. That may not be the end of the turn."""
    ids: tuple[int, ...] = ()
    """The ids of the tokens, where the request asked for them."""
    logprobs: tuple[float, ...] = ()
    thought: str = ""
    """The next part of the reasoning, where the server sends it apart from the text."""


class ChatModel(Protocol):
    """A model behind some server, or none. Safe to call many times at once on one event loop."""

    @property
    def name(self) -> str: ...

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request, without retries.

        Raises:
            ModelError: the call failed; `is_retryable` says whether the same request may succeed later.
        """
        ...

    async def aclose(self) -> None: ...
