"""A conversation in text with a served model: streamed, checked while it is written, retried and metered."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from rubricem_agent.policy.base import Emission, Listener, Opening, TokenSegment, TurnEnd, TurnWatch, kept_length
from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.base import Finish
from rubricem_env.llm.limits import Limiter, RetryPolicy, Timing, call_with_retry
from rubricem_env.llm.usage import Meter, Usage
from rubricem_env.tools.render import estimate_tokens

PHASE = "policy"
"""The phase under which the cost of turns is recorded."""
REFUSED = "the server refused to write the turn; ask something else or use another model"
Exchange = tuple[str, str]
"""A turn as the episode kept it, and what the policy read after it."""


class Delta(NamedTuple):
    """The next part of a stream."""

    text: str = ""
    usage: Usage | None = None
    """Of this stream so far, where the server reports it."""
    finish: Finish | None = None
    at_stop_string: bool = False
    """The stream ended at one of our stop strings. That may not be the end of the turn."""
    ids: tuple[int, ...] = ()
    """The tokens, where the request asked for them."""
    logprobs: tuple[float, ...] = ()


StreamTurn = Callable[[Sequence[Exchange], str, int], AsyncGenerator[Delta, None]]
"""Given the exchanges, the text begun of the next turn and a token limit, streams the rest of the turn.

Raises ContextOverflow if it does not fit, else ModelError.
"""


class Service(NamedTuple):
    """What all calls to one server share."""

    name: str
    limiter: Limiter
    meter: Meter
    timing: Timing
    retry: RetryPolicy = RetryPolicy()


class TextConversation:
    """One episode in text mode."""

    def __init__(self, stream: StreamTurn, opening: Opening, *, service: Service) -> None:
        self._stream = stream
        self._service = service
        self._exchanges: list[Exchange] = []
        self._has_shown = False
        self._size = estimate_tokens(opening.system) + estimate_tokens(opening.user)

    @property
    def pieces(self) -> tuple[TokenSegment, ...]:
        return ()

    async def emit(self, *, max_tokens: int, listener: Listener) -> Emission:
        """The next turn. After a broken connection the turn starts again.

        Raises:
            ContextOverflow: the conversation no longer fits.
            ModelError: all tries failed, or the server refuses.
            SpendLimitReached: the turn might exceed a limit and was not requested.
        """
        self._has_shown = False
        emission = await call_with_retry(
            lambda: self._try(max_tokens, listener),
            doing=f"get a turn from {self._service.name}",
            error=ModelError,
            policy=self._service.retry,
            timing=self._service.timing,
        )
        kept = emission.text[: kept_length(emission.text)]
        self._exchanges.append((kept, ""))
        self._size += estimate_tokens(kept)
        return emission

    def observe(self, text: str) -> None:
        turn, observation = self._exchanges[-1]
        self._exchanges[-1] = turn, observation + text
        self._size += estimate_tokens(text)

    def close(self) -> None:
        return None

    async def _try(self, max_tokens: int, listener: Listener) -> Emission:
        if self._has_shown:
            listener.restarted()
        expected = Usage(calls=1, input_tokens=self._size, output_tokens=max_tokens)
        service = self._service
        async with service.limiter.slot(expected.tokens):
            with service.meter.reserve(PHASE, service.name, expected=expected) as record:
                turn = _StreamedTurn(listener)
                try:
                    await self._follow(turn, max_tokens)
                finally:
                    self._has_shown = bool(turn.text)
                    record(turn.usage(self._size))
                return Emission(turn.text, turn.end or "stopped", turn.usage(self._size))

    async def _follow(self, turn: "_StreamedTurn", max_tokens: int) -> None:
        """Stream until the turn is over; a stop string inside a thought is followed by another request."""
        needs_more = True
        while needs_more and turn.end is None:
            left = max_tokens - estimate_tokens(turn.text)
            if left <= 0:
                turn.end = "length"
                return
            async with aclosing(self._stream(self._exchanges, turn.text, left)) as stream:
                needs_more = await turn.follow(stream)


class _StreamedTurn:
    """The part of one turn that has arrived."""

    def __init__(self, listener: Listener) -> None:
        self.text = ""
        self.end: TurnEnd | None = None
        self._listener = listener
        self._watch = TurnWatch()
        self._streams: list[Usage | None] = []
        self._has_begun = False

    def usage(self, size: int) -> Usage:
        """As the server reports, or estimated where a stream was closed early; no tokens if nothing arrived."""
        if not self._has_begun:
            return Usage(calls=max(1, len(self._streams)))
        reported = [usage for usage in self._streams if usage is not None]
        if len(reported) == len(self._streams):
            return sum(reported, Usage())
        return Usage(calls=len(self._streams), input_tokens=size, output_tokens=estimate_tokens(self.text))

    async def follow(self, stream: AsyncGenerator[Delta, None]) -> bool:
        """Read one stream; whether the turn needs another one."""
        self._streams.append(None)
        arrived = 0
        async for delta in stream:
            self._has_begun = True
            self._streams[-1] = delta.usage or self._streams[-1]
            arrived += len(delta.text)
            if delta.text:
                self.text += delta.text
                self._listener.wrote(delta.text)
                self.end = self._watch.feed(delta.text)
            if self.end is None and delta.finish == "blocked":
                raise ModelError(REFUSED)
            if self.end is None and delta.finish == "length":
                self.end = "length"
            if self.end is not None:
                return False
            if delta.at_stop_string and arrived:
                return True
        return False
