"""The reward of one step, and what `info` says of scores that are absent."""

from rubricem_env.domain.judgement import Judgement, StageScore, Unscored
from rubricem_env.domain.stage import STAGES, Stage
from rubricem_env.env.episode import Episode
from rubricem_env.env.scoring import RewardMode, Scorer
from rubricem_env.scaffold.grammar import PLAN


def plan_just_closed(episode: Episode) -> bool:
    """Whether the last turn wrote the plan that makes the Plan stage: the first one, before any search."""
    *earlier, last = episode.turns
    return last.first(PLAN) is not None and not any(turn.call or turn.first(PLAN) for turn in earlier)


def stages_to_score(episode: Episode, mode: RewardMode) -> tuple[Stage, ...]:
    """The stages whose scores this step pays out; empty where it pays nothing."""
    if mode is RewardMode.ANSWER:
        return (Stage.ANSWER,) if episode.is_over else ()
    if mode is RewardMode.STAGEWISE:
        if episode.is_over:
            plan_was_paid = any(turn.first(PLAN) for turn in episode.turns[:-1])
            return STAGES[1:] if plan_was_paid else STAGES
        return (Stage.PLAN,) if plan_just_closed(episode) else ()
    return ()


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
