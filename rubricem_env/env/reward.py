"""The reward of one step, and what `info` says of scores that are absent."""

from typing import NamedTuple

from rubricem_env.domain.judgement import Judgement, StageScore, Unscored
from rubricem_env.domain.stage import STAGES, Stage
from rubricem_env.env.episode import Episode
from rubricem_env.env.scoring import RewardMode, Scorer
from rubricem_env.scaffold.grammar import PLAN


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
