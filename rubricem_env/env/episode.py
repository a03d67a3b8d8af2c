"""The episode: a state machine without I/O, which every driver advances in the same way.

    reply = episode.emit(text)
    while not isinstance(reply, Finished):
        if isinstance(reply, ToolCall):
            reply = episode.observe(the toolbox's answer)
        else:
            reply = episode.emit(the policy's next text, given reply.observation)

The same emissions and results give the same trajectory, byte for byte: nothing here reads a clock or a random number.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from pydantic import Field, model_validator

from rubricem_env.domain.base import PositiveCount
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.settings import Settings
from rubricem_env.domain.trajectory import (
    Ending,
    Fold,
    Observation,
    Origin,
    Query,
    Segment,
    Source,
    ToolCall,
    ToolResult,
    Trajectory,
)
from rubricem_env.env.context import ContextLimits, EpisodeView
from rubricem_env.env.view import View
from rubricem_env.scaffold.grammar import DEFAULT
from rubricem_env.scaffold.parsed import ParsedTrajectory, parse_trajectory
from rubricem_env.scaffold.parser import parse_turn
from rubricem_env.scaffold.turn import Turn
from rubricem_env.scaffold.validation import TurnRules
from rubricem_env.scaffold.violation import Violation
from rubricem_env.tools.render import (
    CAPS,
    ObservationCaps,
    TokenCount,
    estimate_tokens,
    render_notice,
    render_observation,
)

CALL_SECONDS = 600.0


class EpisodeLimits(Settings):
    """Limits of one episode; the defaults are the paper's (appendix F.1.2), and where it names none, ours."""

    max_calls: PositiveCount = 10
    """The most tool calls that are executed.

    One attempt beyond it gets an error observation, a second one ends the episode.
    """
    max_turns: Annotated[int, Field(ge=2)] = 14
    """The most emissions of any kind. They are the calls, the answer, and a few invalid ones."""
    max_tokens: PositiveCount = 18_432
    """The most tokens of the response, which is the policy's text and the tools' answers, without the prompt.

    Of the whole record, also where `context` lets the policy read less of it.
    """
    max_idle_turns: PositiveCount = 2
    """Emissions in a row without an action that end the episode."""
    call_seconds: Annotated[float, Field(gt=0)] = CALL_SECONDS
    """The most seconds of one tool call, with all waiting. Engines and MCP servers have shorter limits of their own."""
    repeat_notice_at: Annotated[int, Field(ge=2)] = 3
    """On the Nth identical call the policy reads a notice."""
    observation: ObservationCaps = CAPS
    """How much of a tool's result the policy reads."""

    @model_validator(mode="after")
    def _leaves_room_to_answer(self) -> "EpisodeLimits":
        if self.max_turns <= self.max_calls:
            raise ValueError(
                f"max_turns is {self.max_turns} and max_calls is {self.max_calls}; an episode needs one more turn "
                "than calls, for the answer. Raise max_turns or lower max_calls."
            )
        return self


NO_ACTION_NOTICE = (
    "Your turn ended without an action. End each turn with exactly one tool call, "
    '<call_tool name="...">query</call_tool>, or with <{answer}>...</{answer}>.'
)
NO_ANSWER_NOTICE = "Your turn ended without <{answer}>...</{answer}>. Write it, and stop."
"""The same where there are no tools."""
INCOMPLETE_CALL_NOTICE = (
    'The call was not made: it names no tool or has no query. Write <call_tool name="{tool}">query</call_tool>.'
)
BUDGET_USED_NOTICE = "This was your last tool call: the budget is used. Review what you have and answer."
OVER_BUDGET_NOTICE = "The call was not made: the budget of tool calls is used. Review what you have and answer."
REPEATED_CALL_NOTICE = "You have made this very call {times} times; its result will not change. Ask something else."


class Continue(NamedTuple):
    """It is the policy's turn; `observation` is what it reads first."""

    observation: str


class Finished(NamedTuple):
    """The episode is over."""

    ending: Ending
    observation: str = ""
    """The last tool result, if it used up a limit."""


Reply = ToolCall | Continue | Finished
"""A `ToolCall` is the policy's: pass its result to `observe`."""


class Episode:
    """One attempt at one question."""

    def __init__(
        self,
        query: Query,
        *,
        prompt: str | None = None,
        limits: EpisodeLimits | None = None,
        count_tokens: TokenCount = estimate_tokens,
        seed: int | None = None,
        scaffold: Scaffold = DEFAULT,
        context: ContextLimits | None = None,
        system: str = "",
    ) -> None:
        """`count_tokens` is the policy's own; without it all limits in tokens are estimates.

        `context` bounds what the policy reads of the record; `system` is what it reads before the prompt.

        Raises:
            ConfigError: system and prompt alone leave no room in a folded context.
        """
        self.query = query
        self.scaffold = scaffold
        self.limits = limits or EpisodeLimits()
        self.ending: Ending | None = None
        self.calls_used = 0
        self.tokens_used = 0
        self._count_tokens = count_tokens
        self._seed = seed
        self._segments = [Segment(origin=Origin.PROMPT, text=query.question if prompt is None else prompt)]
        self._view = EpisodeView(
            self._segments[0].text,
            limits=context or ContextLimits(),
            count_tokens=count_tokens,
            scaffold=scaffold,
            system=system,
        )
        self._turns: list[Turn] = []
        self._rules = TurnRules(scaffold)
        self._violations: list[Violation] = []
        """Of the first `_num_checked` turns."""
        self._num_checked = 0
        self._pending: ToolCall | None = None
        self._idle_turns = 0
        self._refused_calls = 0
        self._snippets_shown = 0
        self._calls_made: Counter[object] = Counter()

    @property
    def turns(self) -> tuple[Turn, ...]:
        return tuple(self._turns)

    @property
    def is_over(self) -> bool:
        return self.ending is not None

    @property
    def calls_left(self) -> int:
        return self.limits.max_calls - self.calls_used

    @property
    def last_status(self) -> str:
        """The status of the last turn's tool call; "" if it made none."""
        observation = self._segments[-1].observation
        return observation.status.value if observation is not None and observation.status else ""

    @property
    def context(self) -> ContextLimits:
        """How much of the record the policy reads."""
        return self._view.limits

    @property
    def folds(self) -> tuple[Fold, ...]:
        """Where the policy's view was folded so far."""
        return tuple(self._view.folds)

    @property
    def view(self) -> View:
        """What the policy reads before its next turn: the record, or what its last fold left of it."""
        return self._view.view

    @property
    def last_segment(self) -> Segment:
        """The last segment of the record so far."""
        return self._segments[-1]

    @property
    def trajectory(self) -> Trajectory:
        """The record so far."""
        return Trajectory(
            question=self.query.question,
            answer_format=self.query.answer_format,
            scaffold=self.scaffold,
            segments=tuple(self._segments),
            ending=self.ending,
            seed=self._seed,
            folds=self.folds,
        )

    def read(self) -> ParsedTrajectory:
        """The record with its stages, citations and violations; turns are not parsed again."""
        return parse_trajectory(self.trajectory, turns=self._turns, found=self._turn_violations())

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Those of the turns so far and of their order; once the episode is over, those of the whole record."""
        return self.read().violations if self.is_over else tuple(self._turn_violations())

    def emit(self, text: str, *, thought: str = "") -> Reply:
        """Take the policy's next turn. Text after the action is truncated; the record keeps it as `cut`.

        `thought` is reasoning that came apart from the text: the record keeps it, and nothing reads structure from it.

        Raises:
            UsageError: the episode is over, or waits for a tool result.
        """
        if self.ending is not None:
            raise UsageError(f"the episode is over ({self.ending.value}); start a new one instead of emitting again.")
        if self._pending is not None:
            raise UsageError(f"the episode waits for the result of {self._pending.name!r}; call observe() first.")
        segment = Segment(origin=Origin.POLICY, text=text)
        turn = parse_turn(segment.text, len(self._turns) + 1, self.scaffold)
        kept, cut = turn.text[: turn.end], turn.text[turn.end :]
        self._segments.append(Segment(origin=Origin.POLICY, text=kept, cut=cut, thought=thought))
        self._turns.append(turn._replace(text=kept))
        self.tokens_used += self._count_tokens(kept)
        return self._reply(turn)

    def observe(self, result: ToolResult) -> Continue | Finished:
        """Take the result of the call that `emit` asked for.

        Raises:
            UsageError: no call is waiting.
        """
        call = self._pending
        self._pending = None
        if call is None:
            raise UsageError(
                "no tool call is waiting for a result; call emit() first and observe() on a ToolCall only."
            )
        text, snippet_ids = render_observation(
            result,
            first_id=self._snippets_shown + 1,
            notices=self._notices(call),
            caps=self.limits.observation,
            count_tokens=self._count_tokens,
            scaffold=self.scaffold,
        )
        self._snippets_shown += len(snippet_ids)
        record = Observation(
            status=result.status,
            call=result.executed or call,
            snippet_ids=snippet_ids,
            sources=tuple(map(Source.of, result.snippets[: len(snippet_ids)])),
        )
        return self._show(text, record)

    def abandon(self, ending: Ending = Ending.ABANDONED) -> Finished:
        """End the episode from outside: after a failure, a time-out or a shutdown, or by a limit, named as `ending`."""
        self._pending = None
        return self._finish(self.ending or ending)

    def _turn_violations(self) -> Sequence[Violation]:
        """Those of the turns so far. Each turn is checked once, and only where somebody asks."""
        for turn in self._turns[self._num_checked :]:
            self._violations.extend(self._rules.check(turn))
        self._num_checked = len(self._turns)
        return self._violations

    def _reply(self, turn: Turn) -> Reply:
        if turn.answer is not None:
            return self._finish(Ending.ANSWERED)
        if self.tokens_used >= self.limits.max_tokens:
            return self._finish(Ending.TOKEN_BUDGET)
        if turn.number >= self.limits.max_turns:
            return self._finish(Ending.TURN_BUDGET)
        if turn.call is None:
            self._idle_turns += 1
            if self._idle_turns >= self.limits.max_idle_turns:
                return self._finish(Ending.STALLED)
            notice = NO_ACTION_NOTICE if self.scaffold.calls_tools else NO_ANSWER_NOTICE
            return self._show(render_notice(notice.format(answer=self.scaffold.answer_tag)), Observation())
        self._idle_turns = 0
        return self._reply_to_call(turn.call)

    def _reply_to_call(self, call: ToolCall) -> Reply:
        if not (call.name and call.query):
            return self._show(
                render_notice(INCOMPLETE_CALL_NOTICE.format(tool=self.scaffold.tools[0])), Observation(call=call)
            )
        if self.calls_left == 0:
            self._refused_calls += 1
            if self._refused_calls > 1:
                return self._finish(Ending.CALL_BUDGET)
            return self._show(render_notice(OVER_BUDGET_NOTICE), Observation(call=call))
        self.calls_used += 1
        self._calls_made[call.identity] += 1
        self._pending = call
        return call

    def _notices(self, call: ToolCall) -> tuple[str, ...]:
        times = self._calls_made[call.identity]
        notices = []
        if times >= self.limits.repeat_notice_at:
            notices.append(REPEATED_CALL_NOTICE.format(times=times))
        if self.calls_left == 0:
            notices.append(BUDGET_USED_NOTICE)
        return tuple(notices)

    def _show(self, text: str, record: Observation) -> Continue | Finished:
        self._segments.append(Segment(origin=Origin.TOOL, text=text, observation=record))
        self.tokens_used += self._count_tokens(text)
        if self.tokens_used >= self.limits.max_tokens:
            return self._finish(Ending.TOKEN_BUDGET, text)
        self._view.append(self._segments[-2].text, self._segments[-1], used=self.tokens_used)
        return Continue(text)

    def _finish(self, ending: Ending, observation: str = "") -> Finished:
        self.ending = ending
        return Finished(ending, observation)
