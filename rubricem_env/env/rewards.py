"""Where an environment gets its rewards from, if it gets any.

The reward of one step, and what `info` says of scores that are absent.

When several episodes attempt one question, the judge contrasts them: it gets the group in one call, once all are over.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.judgement import Judgement, StageScore, Unscored
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.env.episode import Episode
from rubricem_env.scaffold.grammar import PLAN


class RewardMode(StrEnum):
    """What `step` returns as reward."""

    NONE = "none"
    """Always 0.0: the judge works on finished groups, outside the environment."""
    ANSWER = "answer"
    """The Answer stage's score on the last step."""
    STAGEWISE = "stagewise"
    """Each stage's score on the step that closes it: the plan's at once, the others' on the last step."""


@runtime_checkable
class Scorer(Protocol):
    """Scores trajectories of one question. A failure to score is an outcome with its reason, not an exception."""

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
        return [self._judgement_of(trajectory) for trajectory in trajectories]

    def _judgement_of(self, trajectory: Trajectory) -> Judgement:
        judgement = self._judge(trajectory)
        if not isinstance(judgement, Judgement):
            raise UsageError(
                f"the function of ScoreEach returned a {type(judgement).__name__}; it returns a Judgement, such as "
                "Judgement.of({Stage.ANSWER: StageScore(score=1.0)})."
            )
        return judgement


def read_reward_mode(reward: RewardMode | str, scorer: Scorer | None) -> RewardMode:
    """The mode by its name.

    Raises:
        ConfigError: there is no such mode, or it needs a scorer and none is given.
        UsageError: what is given as scorer cannot score.
    """
    names = [mode.value for mode in RewardMode]
    if reward not in names:
        raise ConfigError(f"the reward mode is {reward!r}; it is one of {', '.join(names)}.")
    mode = RewardMode(reward)
    if scorer is not None and not isinstance(scorer, Scorer):
        raise UsageError(
            f"scorer is a {type(scorer).__name__}; a scorer has `async score(trajectories)`. Write "
            "ScoreEach(function) for a function from one trajectory to its Judgement."
        )
    if mode is not RewardMode.NONE and scorer is None:
        raise ConfigError(
            f"the reward mode {mode.value!r} needs a scorer and none is given; pass scorer=..., "
            "for example ScoreEach(function), or use reward='none'."
        )
    return mode


class Payout(NamedTuple):
    """What the reward of a step is read from."""

    judgement: Judgement | None = None
    """None where the step pays nothing."""
    stages: tuple[Stage, ...] = ()
    """Those that the step pays out."""


def stages_of(mode: RewardMode) -> tuple[Stage, ...]:
    """The stages that a whole episode is paid for."""
    if mode is RewardMode.STAGEWISE:
        return STAGES
    return (Stage.ANSWER,) if mode is RewardMode.ANSWER else ()


def plan_just_closed(episode: Episode) -> bool:
    """Whether the last turn wrote the plan that makes the Plan stage: the first one, before any search."""
    *earlier, last = episode.turns
    return last.first(PLAN) is not None and not any(turn.call or turn.first(PLAN) for turn in earlier)


def stages_to_score(episode: Episode, mode: RewardMode) -> tuple[Stage, ...]:
    """The stages whose scores this step pays out to an episode by itself; empty where it pays nothing."""
    whole = stages_of(mode)
    if episode.is_over:
        plan_was_paid = _plan_closed_earlier(episode)
        return tuple(stage for stage in whole if stage is not Stage.PLAN or not plan_was_paid)
    return (Stage.PLAN,) if Stage.PLAN in whole and plan_just_closed(episode) else ()


async def score_step(episode: Episode, mode: RewardMode, scorer: Scorer | None) -> Judgement | None:
    """The judgement that this step's reward is read from; None where the step pays nothing."""
    if scorer is None or not stages_to_score(episode, mode):
        return None
    return (await scorer.score([episode.trajectory]))[0]


def step_reward(judgement: Judgement | None, stages: tuple[Stage, ...]) -> float:
    """The sum of the scores there are; an absent one adds nothing and is told in `info`, never taken for a zero."""
    if judgement is None:
        return 0.0
    return sum((judgement.score(stage) or 0.0 for stage in stages), 0.0)


def score_info(judgement: Judgement | None, stages: tuple[Stage, ...]) -> dict[str, float | str | None]:
    """`score_<stage>` as a number or None, and `unscored_<stage>` as the reason or None, for the stages paid out."""
    told: dict[str, float | str | None] = {}
    if judgement is None:
        return told
    for stage in stages:
        outcome = judgement.outcome(stage)
        told[f"score_{stage.value}"] = outcome.score if isinstance(outcome, StageScore) else None
        told[f"unscored_{stage.value}"] = outcome.reason.value if isinstance(outcome, Unscored) else None
    return told


def _plan_closed_earlier(episode: Episode) -> bool:
    """Whether a turn before the last wrote the plan that makes the Plan stage; one that follows a search does not."""
    for turn in episode.turns[:-1]:
        if turn.first(PLAN) is not None:
            return True
        if turn.call is not None:
            return False
    return False


class GroupRewards:
    """Pays the episodes of a vector environment, each stage of each episode once.

    An episode alone with its question is paid as in the single environment. A group is paid on the step in which
    its last episode ends, every stage at once; the earlier ones get theirs on that step too. An episode whose answer
    has been paid is settled: it joins no later group of its question.
    """

    def __init__(self, size: int) -> None:
        self._paid: list[tuple[Stage, ...]] = [()] * size

    def begin(self, place: int) -> None:
        """A new episode stands in this place, and nothing of it is paid."""
        self._paid[place] = ()

    async def pay(self, episodes: Sequence[Episode], *, mode: RewardMode, scorer: Scorer | None) -> list[Payout]:
        """What this step pays each episode."""
        payouts = [Payout()] * len(episodes)
        if scorer is None:
            return payouts
        due = tuple(self._due(episodes, mode))
        judged = await asyncio.gather(
            *(scorer.score([episodes[place].trajectory for place in places]) for places, _ in due)
        )
        for (places, stages), judgements in zip(due, judged, strict=True):
            for place, judgement in zip(places, judgements, strict=True):
                owed = tuple(stage for stage in stages if stage not in self._paid[place])
                self._paid[place] += owed
                payouts[place] = Payout(judgement, owed)
        return payouts

    def _due(self, episodes: Sequence[Episode], mode: RewardMode) -> Iterator[tuple[list[int], tuple[Stage, ...]]]:
        """The episodes that are judged together now, by their places, with the stages that this settles."""
        groups: dict[str, list[int]] = defaultdict(list)
        for place, episode in enumerate(episodes):
            if Stage.ANSWER not in self._paid[place]:
                groups[episode.query.key].append(place)
        for places in groups.values():
            if all(episodes[place].is_over for place in places):
                stages = stages_of(mode)
            else:
                stages = stages_to_score(episodes[places[0]], mode) if len(places) == 1 else ()
            if stages:
                yield places, stages
