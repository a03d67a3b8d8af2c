"""A conversation in text with a served model: streamed, checked while it is written, retried and metered."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from rubricem_agent.policy.base import Emission, Listener, Opening, TokenSegment, TurnWatch
from rubricem_env.domain.errors import ModelError
from rubricem_env.env.view import View
from rubricem_env.llm.chat import Delta
from rubricem_env.llm.limits.limiter import Limiter
from rubricem_env.llm.limits.retry import RetryPolicy, call_with_retry
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.thoughts import has_visible_text
from rubricem_env.llm.usage import Meter, Usage
from rubricem_env.scaffold.parser import parse_turn
from rubricem_env.tools.render import estimate_tokens

PHASE = "policy"
"""The phase under which the cost of turns is recorded."""
REFUSED = "the server refused to write the turn; ask something else or use another model"


class Exchange(NamedTuple):
    """A turn as the episode kept it, and what the policy read after it."""

    turn: str
    observation: str
    has_ended: bool = False
    """Whether the policy ended the turn by itself, and did not call a tool."""


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

    pieces: tuple[TokenSegment, ...] = ()

    def __init__(self, stream: StreamTurn, opening: Opening, *, service: Service) -> None:
        self._stream = stream
        self._scaffold = opening.scaffold
        self._service = service
        self._exchanges: list[Exchange] = []
        """Those that the policy reads."""
        self._turns: list[Exchange] = []
        """All of the episode."""
        self._has_shown = False
        self._opening = estimate_tokens(opening.system) + estimate_tokens(opening.user)
        self._size = self._opening

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
        kept = emission.text[: parse_turn(emission.text, scaffold=self._scaffold).end]
        has_ended = emission.end == "stopped" and kept == emission.text
        self._exchanges.append(Exchange(kept, "", has_ended))
        self._turns.append(self._exchanges[-1])
        self._size += estimate_tokens(kept)
        return emission

    def observe(self, text: str) -> None:
        last = self._exchanges[-1]
        self._exchanges[-1] = self._turns[-1] = last._replace(observation=last.observation + text)
        self._size += estimate_tokens(text)

    def fold(self, view: View) -> None:
        self._turns[-1] = self._turns[-1]._replace(observation=view.turns[-1].observation)
        self._exchanges = [
            self._turns[turn.number - 1] if turn.is_whole else Exchange(turn.text, turn.observation)
            for turn in view.turns
        ]
        self._size = self._opening + sum(
            estimate_tokens(turn) + estimate_tokens(observation) for turn, observation, _ in self._exchanges
        )

    def close(self) -> None:
        return None

    async def _try(self, max_tokens: int, listener: Listener) -> Emission:
        if self._has_shown:
            listener.restarted()
        service = self._service
        turn = TurnWatch(listener, self._scaffold)
        usages: list[Usage] = []
        expected = Usage(calls=1, input_tokens=self._size, output_tokens=max_tokens)
        async with (
            service.limiter.slot(expected.input_tokens, expected.output_tokens),
            service.meter.reserve(PHASE, service.name, expected=expected) as record,
        ):
            try:
                while await self._read(turn, usages=usages, max_tokens=max_tokens):
                    pass
                # A continued stream may be blank; a whole turn that nobody can see is no turn of the policy.
                if usages and not has_visible_text(turn.text):
                    raise ModelError("the server streamed a reply without text", is_retryable=True)
            finally:
                self._has_shown = bool(turn.text)
                record(sum(usages, Usage()))
        return Emission(turn.text, turn.end or "stopped", sum(usages, Usage()), turn.thought)

    async def _read(self, turn: TurnWatch, *, usages: list[Usage], max_tokens: int) -> bool:
        """Add one stream to the turn and its cost to `usages`; whether a stop string inside a thought ended the stream.

        The cost is as the server reports, or estimated where a stream was closed early; no tokens if nothing arrived.
        """
        left = max_tokens - estimate_tokens(turn.text)
        if left <= 0:
            turn.end = "length"
            return False
        usages.append(Usage(calls=1))
        before = len(turn.text)
        has_begun = False
        reported: Usage | None = None
        try:
            async with aclosing(self._stream(self._exchanges, turn.text, left)) as stream:
                async for delta in stream:
                    has_begun = True
                    reported = delta.usage or reported
                    turn.thought += delta.thought
                    if delta.text and turn.write(delta.text) is not None:
                        return False
                    if delta.finish == "blocked":
                        raise ModelError(REFUSED)
                    if delta.finish == "length":
                        turn.end = "length"
                        return False
                    if delta.at_stop_string and len(turn.text) > before:
                        return True
        finally:
            if has_begun:
                drawn = estimate_tokens(turn.text[before:])
                usages[-1] = reported or Usage(calls=1, input_tokens=self._size, output_tokens=drawn)
        return False
