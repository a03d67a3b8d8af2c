"""The judgements of a rollout and of a group, as they are logged and saved."""

from collections import Counter
from collections.abc import Iterable

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.judgement import Judgement, Rubric, RubricScore
from rubricem_env.judge.masking import is_valid


class RolloutJudgement(Frozen):
    """The judgement of one trajectory, with the rubric scores that it rests on."""

    judgement: Judgement
    rubric_scores: tuple[RubricScore, ...] = ()
    is_answer_only: bool = False
    """The full call failed, and only the answer has a score."""
    failure: Text = ""
    prompt_hash: Text = ""
    """The hash of the scoring prompt. It is empty where no model was asked."""
    injections: tuple[Text, ...] = ()
    """Kinds of prompt injection against the judge that were found in the trajectory. It does not change the score."""

    @property
    def is_valid(self) -> bool:
        """See `is_valid` of the judgement."""
        return is_valid(self.judgement)


class GroupJudgement(Frozen):
    """The judgements of all trajectories of one question in one step."""

    query_key: Text
    step: int
    fingerprint: Text
    """The hash of the judged trajectories, so that a resumed step does not take another group's scores."""
    judge: Text = ""
    """The judge's name."""
    rubrics: tuple[Rubric, ...]
    """The rubrics that the group was scored by, including those retired since."""
    rollouts: tuple[RolloutJudgement, ...]
    proposal_failure: Text = ""
    """The reason why proposing new rubrics failed. It is empty where it did not."""
    refused: tuple[Text, ...] = ()
    """Reasons for each proposed rubric that was refused."""

    @property
    def judgements(self) -> tuple[Judgement, ...]:
        return tuple(rollout.judgement for rollout in self.rollouts)

    @property
    def failures(self) -> int:
        """The number of invalid rollouts."""
        return sum(not rollout.is_valid for rollout in self.rollouts)


def count_reasons(refusals: Iterable[str]) -> dict[str, int]:
    """Refusals, each "code: sentence", counted by code; an empty one is none."""
    return dict(sorted(Counter(text.partition(":")[0] for text in refusals if text).items()))


def refused_rubrics(groups: Iterable[GroupJudgement]) -> dict[str, int]:
    """How many proposed rubrics were refused, by reason."""
    return count_reasons(refusal for group in groups for refusal in group.refused)
