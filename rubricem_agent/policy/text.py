"""A conversation in text with a model behind a server: streamed, watched, stopped, retried and accounted for."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple, Protocol

from rubricem_agent.policy.base import Emission, Listener, Opening, TokenSegment, TurnEnd, TurnWatch, kept_length
from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.base import Finish, advise_on_model_error
from rubricem_env.llm.limits import Limiter, RetryPolicy, Timing, call_with_retry
from rubricem_env.llm.usage import Meter, Usage
from rubricem_env.tools.render import estimate_tokens

PHASE = "policy"
"""What the cost of turns is booked under."""


class Exchange(NamedTuple):
    """A turn as it was kept, and what the policy read after it."""

    text: str
    observation: str = ""


class Delta(NamedTuple):
    """The next piece of a stream."""

    text: str = ""
    usage: Usage | None = None
    """Of this stream so far, where the server says it."""
    finish: Finish | None = None
    at_stop_string: bool = False
    """The stream ended at a stop string of ours, which may have been no end of the turn."""
    ids: tuple[int, ...] = ()
    """The tokens, from a server that was asked for them."""
    logprobs: tuple[float, ...] = ()


class TextThread(Protocol):
    """One conversation as a server sees it."""

    def stream(self, exchanges: Sequence[Exchange], begun: str, *, max_tokens: int) -> AsyncGenerator[Delta, None]:
        """Continue after the exchanges and what was `begun` of the next turn.

        Raises:
            ContextOverflow: it does not fit.
            PassingModelError: the same request may succeed later.
            ModelError: it will not.
        """
        ...


class Service(NamedTuple):
    """What all calls to one server share."""

    name: str
    limiter: Limiter
    meter: Meter
    timing: Timing
    retry: RetryPolicy = RetryPolicy()


class TextConversation:
    """One episode in text mode."""

    def __init__(self, thread: TextThread, opening: Opening, *, service: Service) -> None:
        self._thread = thread
        self._service = service
        self._exchanges: list[Exchange] = []
        self._has_shown = False
        self._size = estimate_tokens(opening.system) + estimate_tokens(opening.user)

    @property
    def pieces(self) -> tuple[TokenSegment, ...]:
        return ()

    async def emit(self, *, max_tokens: int, listener: Listener) -> Emission:
        """The next turn. A connection that breaks begins the turn anew.

        Raises:
            ContextOverflow: the conversation no longer fits.
            ModelError: all tries failed, or the server refuses.
            CeilingReached: the turn might pass a ceiling, and was not asked for.
        """
        self._has_shown = False
        emission = await call_with_retry(
            lambda: self._try(max_tokens, listener),
            doing=f"get a turn from {self._service.name}",
            error=ModelError,
            advise=advise_on_model_error,
            policy=self._service.retry,
            timing=self._service.timing,
        )
        kept = emission.text[: kept_length(emission.text)]
        self._exchanges.append(Exchange(kept))
        self._size += estimate_tokens(kept)
        return emission

    def observe(self, text: str) -> None:
        last = self._exchanges[-1]
        self._exchanges[-1] = last._replace(observation=last.observation + text)
        self._size += estimate_tokens(text)

    def close(self) -> None:
        return None

    async def _try(self, max_tokens: int, listener: Listener) -> Emission:
        if self._has_shown:
            listener.restarted()
        expected = Usage(calls=1, input_tokens=self._size, output_tokens=max_tokens)
        service = self._service
        async with service.limiter.slot(expected.tokens):
            with service.meter.reserve(PHASE, service.name, expected=expected) as receipt:
                turn = _StreamedTurn(listener)
                try:
                    await self._follow(turn, max_tokens)
                finally:
                    self._has_shown = bool(turn.text)
                    receipt.record(turn.usage(self._size))
                return Emission(turn.text, turn.end or TurnEnd.STOPPED, turn.usage(self._size))

    async def _follow(self, turn: "_StreamedTurn", max_tokens: int) -> None:
        """Stream until the turn is over; a stop string inside a thought is followed by another request."""
        goes_on = True
        while goes_on and turn.end is None:
            left = max_tokens - estimate_tokens(turn.text)
            if left <= 0:
                turn.end = TurnEnd.LENGTH
                return
            stream = self._thread.stream(self._exchanges, turn.text, max_tokens=left)
            async with aclosing(stream):
                goes_on = await turn.follow(stream)


class _StreamedTurn:
    """What has come of one turn so far."""

    def __init__(self, listener: Listener) -> None:
        self.end: TurnEnd | None = None
        self._listener = listener
        self._watch = TurnWatch()
        self._pieces: list[str] = []
        self._streams: list[Usage | None] = []
        self._has_begun = False

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def usage(self, size: int) -> Usage:
        """As the server counted, or as estimated where it was not asked to finish; no tokens where it never began."""
        if not self._has_begun:
            return Usage(calls=max(1, len(self._streams)))
        if self._streams and all(reported is not None for reported in self._streams):
            return sum((reported for reported in self._streams if reported is not None), Usage())
        return Usage(calls=max(1, len(self._streams)), input_tokens=size, output_tokens=estimate_tokens(self.text))

    async def follow(self, stream: AsyncGenerator[Delta, None]) -> bool:
        """Take one stream; whether the turn has to go on with another."""
        self._streams.append(None)
        arrived = 0
        async for delta in stream:
            self._has_begun = True
            self._streams[-1] = delta.usage or self._streams[-1]
            arrived += len(delta.text)
            self._take(delta)
            if self.end is not None:
                return False
            if delta.at_stop_string and arrived:
                return True
        return False

    def _take(self, delta: Delta) -> None:
        if delta.text:
            self._pieces.append(delta.text)
            self._listener.wrote(delta.text)
            self.end = self._watch.feed(delta.text)
        if self.end is None and delta.finish is Finish.BLOCKED:
            raise ModelError("the server refused to write the turn; ask something else or use another model")
        if self.end is None and delta.finish is Finish.LENGTH:
            self.end = TurnEnd.LENGTH
