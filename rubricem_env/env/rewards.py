"""Rewards of an environment: which stages a step pays, and from which scores.

When several episodes attempt one question, the scorer contrasts them: it gets the group in one call, once all are over.
"""

import asyncio
import warnings
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, get_args, runtime_checkable

from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.judgement import Judgement, StageScore, Unscored
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.env.episode import Episode
from rubricem_env.scaffold.grammar import PLAN

RewardMode = Literal["none", "answer", "stagewise"]
"""What `step` returns as reward.

none: always 0.0, because the judge works on finished groups, outside the environment. answer: the Answer stage's score
on the last step. stagewise: each stage's score on the step that closes it: the plan's at once, the others' on the last
step.
"""


@runtime_checkable
class Scorer(Protocol):
    """Scores trajectories of one question. A failure to score is a result with its reason, not an exception."""

    async def score(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]: ...


class ScoreEach:
    """A plain function from one trajectory to its judgement, as a scorer."""

    def __init__(self, judge: Callable[[Trajectory], Judgement]) -> None:
        self._judge = judge

    async def score(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]:
        """One judgement each, in order.

        Raises:
            UsageError: the function returns something else.
        """
        judgements = [self._judge(trajectory) for trajectory in trajectories]
        for judgement in judgements:
            if not isinstance(judgement, Judgement):
                raise UsageError(
                    f"the function of ScoreEach returned a {type(judgement).__name__}; it returns a Judgement, such as "
                    "Judgement.of({Stage.ANSWER: StageScore(score=1.0)})."
                )
        return judgements


Judging = asyncio.Task[Sequence[Judgement]]


class GatheringScorer:
    """Buffers finished episodes until `group_size` attempts at the question are complete, and scores them together.

    After `patience` seconds the group is scored without the missing attempts, with a warning. An episode
    that is still running is scored at once and alone, so environments pay a group its plans at the end. All calls come
    from one event loop.
    """

    def __init__(self, scorer: Scorer, group_size: int, *, patience: float = 600.0) -> None:
        if group_size < 1 or patience <= 0:
            raise UsageError(
                f"group_size is {group_size} and patience {patience} s; they must be at least 1 and above 0."
            )
        self._scorer = scorer
        self.group_size = group_size
        self._patience = patience
        self._open: dict[str, tuple[list[Trajectory], asyncio.Future[Judging]]] = {}
        """The attempts that wait, by query key, and the task that will judge them once the group is closed."""

    async def score(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]:
        """The judgements of these attempts, made within their whole group."""
        if len(trajectories) != 1 or trajectories[0].ending is None:
            return await self._scorer.score(trajectories)
        key = trajectories[0].query_key
        if key not in self._open:
            self._open[key] = [], asyncio.get_running_loop().create_future()
        attempts, closed = self._open[key]
        index = len(attempts)
        attempts.append(trajectories[0])
        if len(attempts) == self.group_size:
            self._close(key)
        try:
            await asyncio.wait_for(asyncio.shield(closed), self._patience)
        except TimeoutError:
            if not closed.done():
                self._close(key)
                warnings.warn(
                    f"a group of {self.group_size} is incomplete: {len(attempts)} attempts came within "
                    f"{self._patience:g} s and are judged without the rest.",
                    stacklevel=2,
                )
        # Shielded: cancelling one attempt does not lose the scores of the others.
        return [(await asyncio.shield(closed.result()))[index]]

    def _close(self, key: str) -> None:
        """Judge the group; no further attempt joins it."""
        attempts, closed = self._open.pop(key)
        closed.set_result(asyncio.ensure_future(self._scorer.score(attempts)))


def check_reward(reward: RewardMode, scorer: Scorer | None) -> None:
    """Refuse an unknown mode, a mode without its scorer, and a scorer without a `score` method."""
    if reward not in get_args(RewardMode):
        raise ConfigError(f"the reward mode is {reward!r}; it is one of {', '.join(get_args(RewardMode))}.")
    if scorer is not None and not isinstance(scorer, Scorer):
        raise UsageError(
            f"scorer is a {type(scorer).__name__}; a scorer has `async score(trajectories)`. Write "
            "ScoreEach(function) for a function from one trajectory to its Judgement."
        )
    if reward != "none" and scorer is None:
        raise ConfigError(
            f"the reward mode {reward!r} needs a scorer and none is given; pass scorer=..., "
            "for example ScoreEach(function), or use reward='none'."
        )


class Payout(NamedTuple):
    """What a step pays."""

    judgement: Judgement | None = None
    """The judgement with the scores of the stages; None where the step pays nothing."""
    stages: tuple[Stage, ...] = ()
    """The stages that the step pays."""


def stages_of(mode: RewardMode) -> tuple[Stage, ...]:
    """The stages that a whole episode is paid for."""
    return {"none": (), "answer": (Stage.ANSWER,), "stagewise": STAGES}[mode]


def stages_to_score(episode: Episode, mode: RewardMode, scorer: Scorer | None) -> tuple[Stage, ...]:
    """The stages that this step pays to an episode that is alone with its question; empty where it pays nothing.

    The Plan stage is the first plan before any search. It is paid on the step that writes it, the rest on the last
    step. With a scorer that gathers a group, all stages are paid on the last step: a plan is judged beside its group's
    plans.
    """
    whole = stages_of(mode)
    if not whole or (isinstance(scorer, GatheringScorer) and scorer.group_size > 1):
        return whole if episode.is_over else ()
    first = next((number for number, turn in enumerate(episode.turns, 1) if turn.call or turn.first(PLAN)), 0)
    plan_turn = first if first and episode.turns[first - 1].first(PLAN) is not None else 0
    is_last = plan_turn == len(episode.turns)
    if episode.is_over:
        return tuple(stage for stage in whole if stage is not Stage.PLAN or not plan_turn or is_last)
    return (Stage.PLAN,) if Stage.PLAN in whole and plan_turn and is_last else ()


async def score_step(episode: Episode, mode: RewardMode, scorer: Scorer | None) -> Payout:
    """What this step pays."""
    if scorer is None:
        return Payout()
    stages = stages_to_score(episode, mode, scorer)
    if not stages:
        return Payout()
    judgements = await scorer.score([episode.trajectory])
    return Payout(judgements[0], stages)


def step_reward(judgement: Judgement | None, stages: tuple[Stage, ...]) -> float:
    """The sum of the scores. A missing score adds nothing; `info` gives the reason."""
    return sum((judgement.score(stage) or 0.0 for stage in stages), 0.0) if judgement is not None else 0.0


def score_info(judgement: Judgement | None, stages: tuple[Stage, ...]) -> dict[str, float | str | None]:
    """`score_<stage>` as a number or None, and `unscored_<stage>` as the reason or None, for the stages paid out."""
    info: dict[str, float | str | None] = {}
    if judgement is None:
        return info
    for stage in stages:
        outcome = judgement.outcome(stage)
        info[f"score_{stage.value}"] = outcome.score if isinstance(outcome, StageScore) else None
        info[f"unscored_{stage.value}"] = outcome.reason if isinstance(outcome, Unscored) else None
    return info
