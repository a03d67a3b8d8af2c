"""What the project asks of a chat model: one request, one reply, what it used, and failures that say whether they pass.

Keys that stay secret: held as SecretStr, read from a mapping that the composition root hands in, redacted in text.

A JSON reply that was checked whole: asked for, parsed, asked for again with what was wrong, typed or failed.

A chat model under one limiter and one meter: what every model that costs something is wrapped in.

A chat model without a model: replies from a list or a function, for tests, dry runs and rehearsed attacks.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar
from urllib.parse import quote, quote_plus

from pydantic import BaseModel, SecretStr

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import BoundaryError, ConfigError, ModelError
from rubricem_env.llm.limits import RETRYABLE_STATUS, Limiter, RetryAdvice, RetryPolicy, Timing, call_with_retry
from rubricem_env.llm.usage import Meter, Usage

_UNAUTHORIZED = (401, 403)


class PassingModelError(ModelError):
    """A model failure after which the same request may succeed; the server may have said when."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Finish(StrEnum):
    """Why a reply ends."""

    STOP = "stop"
    LENGTH = "length"
    """The token limit cut it off."""
    BLOCKED = "blocked"
    """The server refused to write it."""
    OTHER = "other"


class ChatRequest(NamedTuple):
    """One question to a model."""

    prompt: str
    system: str = ""
    schema: type[BaseModel] | None = None
    """The shape of the JSON reply; None asks for plain text. Servers are told, and never believed."""
    purpose: str = "chat"
    """The phase that its cost is booked under."""
    temperature: float = 0.0
    max_output_tokens: int = 8192
    seed: int | None = None


class ChatReply(Frozen):
    """What came back."""

    text: Text
    model: Text
    """As the server names it."""
    usage: Usage = Usage(calls=1)
    finish: Finish = Finish.STOP


class ChatModel(Protocol):
    """A model behind some server, or none. Safe to call many times at once on one event loop."""

    @property
    def name(self) -> str: ...

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request, without retries.

        Raises:
            PassingModelError: the same request may succeed later.
            ModelError: it will not.
        """
        ...

    async def aclose(self) -> None: ...


def advise_on_model_error(failure: BoundaryError) -> RetryAdvice | None:
    """Try again after what may pass, and after nothing else."""
    return RetryAdvice(failure.retry_after) if isinstance(failure, PassingModelError) else None


def status_error(status: int, message: str, *, retry_after: float | None = None, key_variable: str = "") -> ModelError:
    """The typed failure for an HTTP status; a key that is refused is answered with the variable that it stands in."""
    said = f"the server answered {status}: {message.strip()[:500] or 'no message'}"
    if status in _UNAUTHORIZED and key_variable:
        said = f"{said.rstrip('.')}. Set {key_variable} in the environment to a key that this server takes."
    return PassingModelError(said, retry_after=retry_after) if status in RETRYABLE_STATUS else ModelError(said)


REDACTED = "[redacted]"
MIN_SECRET_LENGTH = 6
"""Shorter values are not redacted: they would tear holes into ordinary text, and no real key is so short."""


def read_secret(environ: Mapping[str, str], *names: str, purpose: str) -> SecretStr:
    """The first of `names` that is set and not blank; whitespace around it is dropped.

    Raises:
        ConfigError: none is set; the message names them, never a value.
    """
    for name in names:
        value = environ.get(name, "").strip()
        if value:
            return SecretStr(value)
    raise ConfigError(f"{purpose} needs a key; set {' or '.join(names)} in the environment.")


class Redactor:
    """Takes known secrets out of any text: plain, percent-encoded, or escaped as in JSON."""

    def __init__(self, secrets: Iterable[SecretStr] = ()) -> None:
        self._forms = tuple(sorted(_forms(secrets), key=len, reverse=True))

    def redact(self, text: str) -> str:
        """The text with each known secret replaced by `[redacted]`."""
        for form in self._forms:
            text = text.replace(form, REDACTED)
        return text


def _forms(secrets: Iterable[SecretStr]) -> set[str]:
    values = (secret.get_secret_value() for secret in secrets)
    return {
        form
        for value in values
        if len(value) >= MIN_SECRET_LENGTH
        for form in (value, quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1])
    }


Parsed = TypeVar("Parsed")
MAX_REPLY_CHARS = 200_000
_FENCE = "```"


class UnusableReplyError(PassingModelError):
    """The model answered, but not with what was asked for. Asking again may help."""


class Insistence(NamedTuple):
    """How long to insist on a usable reply, and by which clock."""

    retry: RetryPolicy
    timing: Timing


async def ask_for(
    model: ChatModel, request: ChatRequest, *, parse: Callable[[ChatReply], Parsed], insistence: Insistence
) -> Parsed:
    """Ask until `parse` accepts the reply, within the attempts and the time allowed.

    `parse` raises UnusableReplyError with one sentence; the next try shows that sentence to the model.

    Raises:
        ModelError: every try failed; the last failure.
    """
    complaint = ""

    async def attempt() -> Parsed:
        nonlocal complaint
        reply = await model.complete(_with_complaint(request, complaint))
        try:
            return parse(reply)
        except UnusableReplyError as failure:
            complaint = str(failure)
            raise

    return await call_with_retry(
        attempt,
        doing=f"ask {model.name} to {request.purpose}",
        error=ModelError,
        advise=advise_on_model_error,
        policy=insistence.retry,
        timing=insistence.timing,
    )


def parse_json_object(reply: ChatReply) -> dict[str, object]:
    """The object in a reply: bare, or inside one code fence that is all of it.

    NaN and Infinity become strings, so that they spoil the field that they stand in and nothing else.

    Raises:
        UnusableReplyError: blocked, cut off, too long, not JSON, or not an object.
    """
    if reply.finish is Finish.BLOCKED:
        raise UnusableReplyError("the server blocked the reply")
    if len(reply.text) > MAX_REPLY_CHARS:
        raise UnusableReplyError(f"the reply has {len(reply.text)} characters; at most {MAX_REPLY_CHARS} are read")
    try:
        found = json.loads(_without_fence(reply.text), parse_constant=str)
    except (ValueError, RecursionError) as failure:
        cut = " (it was cut off at the token limit)" if reply.finish is Finish.LENGTH else ""
        raise UnusableReplyError(f"the reply is not valid JSON{cut}: {failure}") from failure
    if not isinstance(found, dict):
        raise UnusableReplyError(f"the reply is a JSON {type(found).__name__}; an object is needed")
    return found


def _without_fence(text: str) -> str:
    stripped = text.strip()
    if not (stripped.startswith(_FENCE) and stripped.endswith(_FENCE) and "\n" in stripped):
        return stripped
    return stripped[stripped.index("\n") : -len(_FENCE)]


def _with_complaint(request: ChatRequest, complaint: str) -> ChatRequest:
    if not complaint:
        return request
    again = f"Your last reply could not be used: {complaint}. Reply again, with one JSON object of the asked shape."
    return request._replace(prompt=f"{request.prompt}\n\n{again}")


CHARS_PER_TOKEN = 3
"""Deliberately low, so that what is held back for a call is more than it will use."""


class MeteredModel:
    """Limits, books and redacts; it does not retry, so that whoever asks decides how long to insist."""

    def __init__(self, model: ChatModel, *, limiter: Limiter, meter: Meter, redactor: Redactor | None = None) -> None:
        self._model = model
        self._limiter = limiter
        self._redactor = redactor or Redactor()
        self.meter = meter

    @property
    def name(self) -> str:
        return self._model.name

    async def complete(self, request: ChatRequest) -> ChatReply:
        """One call; known secrets never reach the message of an error.

        Raises:
            ModelError: as the model says.
            CeilingReached: the call might pass a ceiling, and was not made.
        """
        expected = expected_usage(request)
        async with self._limiter.slot(expected.tokens):
            with self.meter.reserve(request.purpose, self.name, expected=expected) as receipt:
                reply = await self._complete(request)
                receipt.record(reply.usage)
                return reply

    async def aclose(self) -> None:
        await self._model.aclose()

    async def _complete(self, request: ChatRequest) -> ChatReply:
        try:
            return await self._model.complete(request)
        except PassingModelError as failure:
            raise PassingModelError(self._redactor.redact(str(failure)), retry_after=failure.retry_after) from None
        except ModelError as failure:
            raise ModelError(self._redactor.redact(str(failure))) from None


def expected_usage(request: ChatRequest) -> Usage:
    """The most that a request is likely to use: its text, and all the output that it allows."""
    characters = len(request.prompt) + len(request.system)
    return Usage(calls=1, input_tokens=characters // CHARS_PER_TOKEN + 1, output_tokens=request.max_output_tokens)


Reply = str | ChatReply | ModelError
Answer = Callable[[ChatRequest], Reply | Awaitable[Reply]]


class ScriptedModel:
    """Answers with what it was given, in order or by function; a `ModelError` in its place is raised."""

    def __init__(self, answer: Answer | Iterable[Reply], *, name: str = "scripted") -> None:
        self._answer = answer
        self._replies = None if callable(answer) else iter(answer)
        self._name = name
        self.requests: list[ChatRequest] = []

    @property
    def name(self) -> str:
        return self._name

    async def complete(self, request: ChatRequest) -> ChatReply:
        """The next reply.

        Raises:
            ModelError: the script holds one here, or has come to its end.
        """
        self.requests.append(request)
        reply = await self._next(request)
        if isinstance(reply, ModelError):
            raise reply
        if isinstance(reply, ChatReply):
            return reply
        return ChatReply(text=reply, model=self._name, usage=_count(request, reply))

    async def aclose(self) -> None:
        return None

    async def _next(self, request: ChatRequest) -> Reply:
        if self._replies is not None:
            return next(self._replies, ModelError("the script has no further reply"))
        if not callable(self._answer):
            raise AssertionError("unreachable: an answer is a function or an iterable")
        reply = self._answer(request)
        return await reply if inspect.isawaitable(reply) else reply


def _count(request: ChatRequest, reply: str) -> Usage:
    """Four characters a token: enough to see money move in a rehearsal."""
    read = (len(request.prompt) + len(request.system)) // 4
    return Usage(calls=1, input_tokens=read, output_tokens=len(reply) // 4)
