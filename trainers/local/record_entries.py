"""Entries of a run's record from what a trainer holds: a judged group, its rollouts, and the credit of each."""

from collections.abc import Sequence

from rubricem_agent.learn.run_record import FourNumbers, GroupEntry, RolloutEntry, ShownLesson
from rubricem_agent.memory.retrieval import Retrieved
from rubricem_agent.rollout.packed_tokens import pack_tokens
from rubricem_agent.rollout.rollout import Rollout
from rubricem_env.judge.outcomes import GroupJudgement, RolloutJudgement
from rubricem_env.judge.rubric_set import RubricSet


def group_entry(
    judgement: GroupJudgement,
    rubrics: RubricSet,
    *,
    place: int,
    encounter: str,
    question: str,
    shown: Sequence[Retrieved],
) -> GroupEntry:
    """One question of a step: `rubrics` as the judgement has left them, `shown` the lessons that stood before it."""
    return GroupEntry(
        step=judgement.step,
        place=place,
        encounter=encounter,
        query_key=judgement.query_key,
        question=question,
        judge=judgement.judge,
        rubrics=judgement.rubrics,
        active=rubrics.active,
        retired=tuple(gone for gone in rubrics.archive if gone.retired_step == judgement.step),
        refused=judgement.refused,
        proposal_failure=judgement.proposal_failure,
        lessons=tuple(ShownLesson(item=hit.item.id, similarity=round(hit.similarity, 4)) for hit in shown),
    )


def rollout_entry(
    group: GroupEntry, rollout: Rollout, judged: RolloutJudgement, *, attempt: int, true: FourNumbers | None
) -> RolloutEntry:
    """One attempt as it was judged, before its credit."""
    return RolloutEntry(
        step=group.step,
        place=group.place,
        attempt=attempt,
        rollout=rollout.model_copy(update={"tokens": None}),
        tokens=pack_tokens(rollout.tokens) if rollout.tokens is not None else None,
        judged=judged,
        true=true,
    )


def credited(
    entry: RolloutEntry, *, returns: Sequence[float], advantages: Sequence[float], trained: bool
) -> RolloutEntry:
    """The attempt with what it was worth, stage by stage, and whether the update used it."""
    return entry.model_copy(
        update={"returns": four_numbers(returns), "advantages": four_numbers(advantages), "trained": trained}
    )


def four_numbers(numbers: Sequence[float]) -> tuple[float, float, float, float]:
    """One number a stage."""
    plan, research, review, answer = numbers
    return plan, research, review, answer
