"""Chat models as a service: request, reply, typed failures, checked JSON replies, secrets.

`MeteredModel` adds a rate limiter and a usage meter to any model. Secrets are SecretStr values, read from a given mapping
and redacted in text.
"""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, quote_plus, urlsplit

from pydantic import BaseModel, SecretStr

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import ConfigError, ModelError
from rubricem_env.llm.limits import (
    RETRYABLE_STATUS,
    Balancer,
    Limiter,
    RetryPolicy,
    Timing,
    call_with_hedge,
    call_with_retry,
)
from rubricem_env.llm.usage import Meter, Usage
from rubricem_env.scaffold.folding import fold

Finish = Literal["stop", "length", "blocked", "other"]
"""Why a reply ends: the model ended it, the token limit, a refusal of the server, or anything else, such as an abort."""


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


_THOUGHT = re.compile(r"\s*(?:<think>.*?(?:</think>|\Z)\s*)+", re.DOTALL)
"""Before the text of a reply; one that never closes leaves no text."""


def without_thoughts(text: str) -> str:
    """The text of a reply after its reasoning, which some servers leave in it, with or without the opening tag."""
    thought = _THOUGHT.match(text)
    if thought is not None:
        return text[thought.end() :]
    before, closing, after = text.rpartition("</think>")
    is_thought = closing and "<think>" not in before and not before.lstrip().startswith(("{", "[", "```"))
    return after.lstrip() if is_thought else text


def has_visible_text(text: str) -> bool:
    """Whether a reader would see anything of it."""
    return any(char.isprintable() and not char.isspace() for char in fold(text))


ABORTED = "the server ended the reply before the model did"


class ChatReply(Frozen):
    """What came back."""

    text: Text
    model: Text
    """As the server names it."""
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
        thought = _THOUGHT.match(shown)
        if has_visible_text(shown[thought.end() if thought else 0 :]):
            return ""
        said = "only a thought" if thought else "empty"
        return f"the reply is {said}{' at its token limit' if self.finish == 'length' else ''}"


class Delta(NamedTuple):
    """The next part of a streamed reply."""

    text: str = ""
    usage: Usage | None = None
    """Of this stream so far, where the server reports it."""
    finish: Finish | None = None
    at_stop_string: bool = False
    """The stream ended at one of our stop strings. That may not be the end of the turn."""
    ids: tuple[int, ...] = ()
    """The tokens, where the request asked for them."""
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


class ContextOverflow(ModelError):
    """The request exceeds the model's context."""


_OVERFLOW = re.compile(r"context[_ ](?:length|window|size)|max_model_len|maximum model length", re.IGNORECASE)


def says_overflow(body: str) -> bool:
    """Whether a refusal is about the length of the context."""
    return _OVERFLOW.search(body) is not None


WEB_PAGE = "a web page in place of the API; check the address of the server"
_PAGE_BEGIN = re.compile(r"\s*<(?:!doctype html|html|head|body)\b", re.IGNORECASE)


def is_web_page(body: str) -> bool:
    """Whether a body is HTML, as a gateway, a login page or a wrong address answers with."""
    return _PAGE_BEGIN.match(body) is not None


def status_error(status: int, message: str, *, retry_after: float | None = None, key_variable: str = "") -> ModelError:
    """The typed failure for an HTTP status. `key_variable` is named in the message if the key is refused."""
    shown = f" with {WEB_PAGE}" if is_web_page(message) else f": {message.strip()[:500] or 'no message'}"
    said = f"the server answered {status}{shown}"
    if status in (401, 403) and key_variable:
        said = f"{said.rstrip('.')}. Set {key_variable} in the environment to a key that this server takes."
    return ModelError(said, is_retryable=status in RETRYABLE_STATUS, retry_after=retry_after)


REDACTED = "[redacted]"
MIN_SECRET_LENGTH = 6
"""Shorter values are not redacted: they occur in ordinary text, and no real key is so short."""


def read_secret(environ: Mapping[str, str], *names: str, purpose: str) -> SecretStr:
    """The value of the first of `names` that is set and not blank, without surrounding whitespace.

    Raises:
        ConfigError: none is set; the message names them, never a value.
    """
    for name in names:
        value = environ.get(name, "").strip()
        if value:
            return SecretStr(value)
    raise ConfigError(f"{purpose} needs a key; set {' or '.join(names)} in the environment.")


LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_.-]+))(?::[0-9]{1,5})?")


def host_of(netloc: str) -> str:
    """The host of a Host header, or of an address's part between // and the path; empty for anything but HOST[:PORT].

    A login before the host, and text after the brackets of an IPv6 address, make it something else.
    """
    found = _HOST.fullmatch(netloc.strip().lower())
    return (found[1] or found[2]) if found else ""


def url_host(url: str) -> str:
    """The host of a whole address, as `host_of`."""
    try:
        return host_of(urlsplit(url).netloc)
    except ValueError:
        return ""


def refuse_plain_http(url: str, variable: str) -> None:
    """Raise ConfigError where a key would be sent to an address unencrypted, other than within this machine."""
    host = url_host(url)
    if not host or (urlsplit(url).scheme.lower() != "https" and host not in LOOPBACK):
        raise ConfigError(
            f"{variable} is not sent to {host or 'an address with a login or without a plain host'} unencrypted. Use an "
            f"https address or a tunnel to 127.0.0.1, or unset {variable}."
        )


Redactor = Callable[[str], str]
"""Replaces known secrets in a text; `str` replaces none."""


def redactor_of(secrets: Iterable[SecretStr]) -> Redactor:
    """Replaces each of the secrets by `[redacted]`: plain, percent-encoded, or escaped as in JSON."""
    values = [secret.get_secret_value() for secret in secrets]
    forms = {
        form
        for value in values
        if len(value) >= MIN_SECRET_LENGTH
        for form in (value, quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1])
    }
    longest_first = sorted(forms, key=len, reverse=True)

    def redact(text: str) -> str:
        for form in longest_first:
            text = text.replace(form, REDACTED)
        return text

    return redact


def redact_failure(failure: ModelError, redactor: Redactor) -> ModelError:
    """The failure without known secrets in its message."""
    return ModelError(redactor(str(failure)), is_retryable=failure.is_retryable, retry_after=failure.retry_after)


async def ask_once(model: ChatModel, request: ChatRequest) -> ChatReply:
    """One call whose reply is an answer of the model.

    Raises:
        ModelError: as the model says; also for an empty, blocked or aborted reply, after which a retry may help.
    """
    reply = await model.complete(request)
    if reply.outage:
        raise ModelError(reply.outage, is_retryable=True)
    return reply


Parsed = TypeVar("Parsed")
MAX_REPLY_CHARS = 200_000
_CODE = "```"


async def ask_for(
    model: ChatModel, request: ChatRequest, *, parse: Callable[[ChatReply], Parsed], retry: RetryPolicy, timing: Timing
) -> Parsed:
    """Ask until `parse` accepts the reply, within the attempts and the time allowed.

    `parse` raises a ModelError of one sentence; the next try shows that sentence to the model.

    Raises:
        ModelError: every try failed; the last failure.
    """
    complaint = ""

    async def attempt() -> Parsed:
        nonlocal complaint
        again = (
            f"\n\nYour last reply could not be used: {complaint}. Reply again, with one JSON object of the asked shape."
            if complaint
            else ""
        )
        reply = await ask_once(model, request._replace(prompt=request.prompt + again))
        try:
            return parse(reply)
        except ModelError as failure:
            complaint = str(failure)
            raise

    return await call_with_retry(
        attempt, doing=f"ask {model.name} to {request.purpose}", error=ModelError, policy=retry, timing=timing
    )


def parse_json_object(reply: ChatReply) -> dict[str, object]:
    """The JSON object of a reply: bare, or inside one code block that is the whole reply.

    NaN and Infinity become strings, so that only the field with such a value is invalid.

    Raises:
        ModelError: truncated, too long, not JSON, or not an object.
    """
    if len(reply.text) > MAX_REPLY_CHARS:
        raise ModelError(
            f"the reply has {len(reply.text)} characters; at most {MAX_REPLY_CHARS} are read", is_retryable=True
        )
    text = reply.text.strip()
    if text.startswith(_CODE) and text.endswith(_CODE) and "\n" in text:
        text = text[text.index("\n") : -len(_CODE)]
    try:
        found = json.loads(text, parse_constant=str)
    except (ValueError, RecursionError) as failure:
        cut = " (it was truncated at the token limit)" if reply.finish == "length" else ""
        raise ModelError(f"the reply is not valid JSON{cut}: {failure}", is_retryable=True) from failure
    if not isinstance(found, dict):
        raise ModelError(f"the reply is a JSON {type(found).__name__}; an object is needed", is_retryable=True)
    return found


CHARS_PER_TOKEN = 3
"""Deliberately low, so that a call reserves more than it will use."""


class MeteredModel:
    """A model with a rate limiter, a usage meter and redaction. It does not retry: the caller has the retry policy."""

    def __init__(
        self,
        model: ChatModel,
        *,
        limiter: Limiter,
        meter: Meter,
        redactor: Redactor = str,
        hedge_after: float | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """A request that has no reply `hedge_after` seconds from its begin is sent again; the first reply is taken."""
        self.name = model.name
        self._model = model
        self._limiter = limiter
        self._redactor = redactor
        self._hedge_after = hedge_after
        self._sleep = sleep
        self.meter = meter

    async def complete(self, request: ChatRequest) -> ChatReply:
        """One call, or two where the first is slow; known secrets never reach the message of an error.

        Raises:
            ModelError: as the model says.
            SpendLimitReached: the call might pass a limit, and was not made.
        """
        if self._hedge_after is None:
            return await self._call(request, asyncio.Event())
        return await call_with_hedge(partial(self._call, request), after=self._hedge_after, sleep=self._sleep)

    async def _call(self, request: ChatRequest, has_begun: asyncio.Event) -> ChatReply:
        expected = expected_usage(request)
        async with self._limiter.slot(expected.tokens):
            with self.meter.reserve(request.purpose, self.name, expected=expected) as record:
                has_begun.set()
                try:
                    reply = await self._model.complete(request)
                except ModelError as failure:
                    raise redact_failure(failure, self._redactor) from None
                except asyncio.CancelledError:
                    # The server has the prompt, and may bill it.
                    record(expected.model_copy(update={"output_tokens": 0}))
                    raise
                record(reply.usage)
                return reply

    async def aclose(self) -> None:
        await self._model.aclose()


class ModelPool:
    """One model behind several servers, chosen by a `Balancer`: a request that one of them fails goes to the next."""

    def __init__(
        self, servers: Sequence[ChatModel], *, rest: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._servers = tuple(servers)
        self.name = self._servers[0].name
        self._balancer = Balancer(len(self._servers), clock, rest)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """As the model says; the failure of the last server where none answers."""
        left = set(range(len(self._servers)))
        while True:
            try:
                with self._balancer.request(left) as chosen:
                    left.remove(chosen)
                    return await self._servers[chosen].complete(request)
            except ModelError as failure:
                if not (left and failure.is_retryable):
                    raise

    async def aclose(self) -> None:
        for server in self._servers:
            await server.aclose()


def expected_usage(request: ChatRequest) -> Usage:
    """The most that a request is likely to use: its text, and all the output that it allows."""
    characters = len(request.prompt) + len(request.system)
    return Usage(calls=1, input_tokens=characters // CHARS_PER_TOKEN + 1, output_tokens=request.max_output_tokens)
