"""One step of an episode: the emission, the tool call and, if requested, the reward."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rubricem_env.domain.errors import ToolError, boundary
from rubricem_env.domain.trajectory import Ending, ToolCall, ToolResult
from rubricem_env.env.episode import CALL_SECONDS, Continue, Episode, Finished
from rubricem_env.env.rewards import Payments, RewardMode, Scorer, score_step, step_reward
from rubricem_env.llm.tracing import note_result, span
from rubricem_env.scaffold.violation import Violation
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.failures import result_of_failure


class StepOutcome(NamedTuple):
    """The five values of Gymnasium's `step`."""

    observation: str
    reward: float
    terminated: bool
    """The policy answered."""
    truncated: bool
    """A limit ended the episode."""
    info: dict[str, Any]

    @property
    def is_over(self) -> bool:
        return self.terminated or self.truncated


async def advance(episode: Episode, toolbox: Toolbox, text: str, *, thought: str = "") -> Continue | Finished:
    """Give the policy's text to the episode, make its tool call, and return what the policy reads next."""
    reply = episode.emit(text, thought=thought)
    if not isinstance(reply, ToolCall):
        return reply
    return episode.observe(await call_tool(toolbox, reply, seconds=episode.limits.call_seconds))


async def call_tool(toolbox: Toolbox, call: ToolCall, *, seconds: float = CALL_SECONDS) -> ToolResult:
    """The toolbox's answer.

    If it raises, against its contract, or does not answer within `seconds`, the policy reads an error and the episode
    continues. A tool that blocks the event loop cannot be stopped.
    """
    try:
        # A name that is no tool's is the policy's text, which no trace has unless it is asked for.
        name = call.name if call.name in toolbox.names else "unknown"
        with span("execute_tool", name) as called, boundary(ToolError, f"call {call.name}"):
            async with asyncio.timeout(seconds):
                result = await toolbox.call(call)
            note_result(called, call, result)
            return result
    except ToolError as failure:
        return result_of_failure(failure)


async def take_step(
    episode: Episode,
    text: str,
    *,
    toolbox: Toolbox,
    mode: RewardMode = "none",
    scorer: Scorer | None = None,
    payments: Payments | None = None,
) -> StepOutcome:
    """One step of one episode, with its reward. `payments` are those of the episode's earlier steps."""
    payments = payments or Payments(mode, episode.scaffold)
    reply = await advance(episode, toolbox, text)
    reward = step_reward(*payments.pay(await score_step(episode, mode, scorer)))
    return step_outcome(episode, reply, reward=reward, scores=payments.info())


async def cut_short(
    episode: Episode, ending: Ending, *, mode: RewardMode, scorer: Scorer | None, payments: Payments
) -> tuple[float, dict[str, Any]]:
    """End an episode by a limit from outside; the reward and `info` of what was written so far."""
    episode.abandon(ending)
    reward = step_reward(*payments.pay(await score_step(episode, mode, scorer)))
    return reward, {**step_info(episode), **payments.info()}


def step_outcome(
    episode: Episode, reply: Continue | Finished, *, reward: float, scores: Mapping[str, Any]
) -> StepOutcome:
    """The five values; `info` holds the facts of the step and the scores."""
    answered = isinstance(reply, Finished) and reply.ending is Ending.ANSWERED
    truncated = isinstance(reply, Finished) and not answered
    return StepOutcome(reply.observation, reward, answered, truncated, {**step_info(episode), **scores})


def reset_info(episode: Episode) -> dict[str, Any]:
    """The facts of an episode before its first step."""
    query = episode.query
    return {"query_key": query.key, "answer_format": query.answer_format.value, **view_info(episode)}


def step_info(episode: Episode) -> dict[str, Any]:
    """The facts of the last step: flat JSON values with the same keys every time, and the view where one is asked for.

    The view is a list of messages.
    """
    turn = episode.turns[-1]
    return {
        "turn": turn.number,
        "calls_used": episode.calls_used,
        "calls_left": episode.calls_left,
        "tokens_used": episode.tokens_used,
        "violations": _codes(turn.violations),
        "episode_violations": _codes(episode.violations),
        "tool_status": episode.last_status,
        "ending": episode.ending.value if episode.ending else "",
        **view_info(episode),
    }


def view_info(episode: Episode) -> dict[str, Any]:
    """What the policy reads next, where its context is bounded."""
    if episode.context.fold_at is None:
        return {}
    return {"folds": len(episode.folds), "view": episode.view.messages}


def _codes(violations: Iterable[Violation]) -> str:
    return ",".join(violation.code.value for violation in violations)
