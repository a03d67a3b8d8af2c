"""What judging a group yields, as data: kept, resumed from, shown, and handed to the reflection judge."""

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.judgement import Judgement, Unscored, UnscoredReason
from rubricem_env.domain.rubric import Rubric
from rubricem_env.domain.stage import STAGES
from rubricem_env.judge.opinion import Opinion


class RolloutJudgement(Frozen):
    """One trajectory's outcome, with everything that it rests on."""

    judgement: Judgement
    opinions: tuple[Opinion, ...] = ()
    is_answer_only: bool = False
    """Every stage has the answer's score: the full call failed (choice B7)."""
    failure: Text = ""
    prompt_hash: Text = ""
    """Of the scoring prompt; empty where no model was asked."""
    bait: tuple[Text, ...] = ()
    """Kinds of text in the trajectory that speak to the judge. A feature to watch, without effect on the score."""

    @property
    def is_valid(self) -> bool:
        """Whether it may enter group statistics and the loss: no stage of it was lost to a judge failure."""
        outcomes = [self.judgement.outcome(stage) for stage in STAGES]
        return not any(isinstance(o, Unscored) and o.reason is UnscoredReason.JUDGE_FAILED for o in outcomes)


class GroupJudgement(Frozen):
    """All trajectories of one question in one step."""

    query_key: Text
    step: int
    fingerprint: Text
    """Of the trajectories that were judged, so that a resumed step cannot take another group's scores."""
    judge: Text = ""
    """The judge's name."""
    rubrics: tuple[Rubric, ...]
    """All that the group was marked by, in use or retired since."""
    rollouts: tuple[RolloutJudgement, ...]
    proposal_failure: Text = ""
    """Why there are no new rubrics, where that was not the judge's wish."""
    refused: tuple[Text, ...] = ()
    """Proposals that were not let in, with the reasons."""

    @property
    def judgements(self) -> tuple[Judgement, ...]:
        return tuple(rollout.judgement for rollout in self.rollouts)

    @property
    def failures(self) -> int:
        """Rollouts that have no valid score."""
        return sum(not rollout.is_valid for rollout in self.rollouts)
