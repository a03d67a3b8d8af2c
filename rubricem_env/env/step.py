"""Turns the episode's crank: the one place where an emission meets the tools and, if asked for, the scorer."""

from typing import Any, NamedTuple

from rubricem_env.domain.errors import ToolError, boundary
from rubricem_env.domain.trajectory import Ending, ToolCall, ToolResult, ToolStatus
from rubricem_env.env.episode import CallTool, Continue, Episode, Finished
from rubricem_env.env.rewards import Payout, RewardMode, Scorer, score_info, score_step, stages_to_score, step_reward
from rubricem_env.tools.base import Toolbox


class StepOutcome(NamedTuple):
    """What Gymnasium's `step` returns."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


async def advance(episode: Episode, toolbox: Toolbox, text: str) -> Continue | Finished:
    """Give the policy's text to the episode, make the call that it asks for, and return what the policy reads next."""
    reply = episode.emit(text)
    if isinstance(reply, CallTool):
        return episode.observe(await _call(toolbox, reply.call))
    return reply


async def _call(toolbox: Toolbox, call: ToolCall) -> ToolResult:
    """The toolbox's answer; what it raises, against its promise, is an error result: the episode goes on."""
    try:
        with boundary(ToolError, f"call {call.name}"):
            return await toolbox.call(call)
    except ToolError as failure:
        return ToolResult(status=ToolStatus.ERROR, message=str(failure))


async def take_step(
    episode: Episode, text: str, *, toolbox: Toolbox, mode: RewardMode = RewardMode.NONE, scorer: Scorer | None = None
) -> StepOutcome:
    """One step of one episode, with its reward."""
    reply = await advance(episode, toolbox, text)
    judgement = await score_step(episode, mode, scorer)
    return outcome_of(episode, reply, Payout(judgement, stages_to_score(episode, mode)))


def outcome_of(episode: Episode, reply: Continue | Finished, payout: Payout) -> StepOutcome:
    """The step's five values from the episode's reply and what the step pays."""
    is_over = isinstance(reply, Finished)
    answered = isinstance(reply, Finished) and reply.ending is Ending.ANSWERED
    info = {**step_info(episode), **score_info(*payout)}
    return StepOutcome(reply.observation, step_reward(*payout), answered, is_over and not answered, info)


def step_info(episode: Episode) -> dict[str, Any]:
    """The facts of the last step: flat, JSON-able, the same keys every time."""
    turn = episode.turns[-1]
    return {
        "turn": turn.number,
        "calls_used": episode.calls_used,
        "calls_left": episode.calls_left,
        "tokens_used": episode.tokens_used,
        "violations": ",".join(found.code.value for found in turn.violations),
        "tool_status": episode.last_status,
        "ending": episode.ending.value if episode.ending else "",
    }
