"""Turns a judged group of a step into the entries of a run's record."""

from collections.abc import Sequence

from rubricem_agent.learn.credit import Credit
from rubricem_env.judge.judgements import GroupJudgement
from rubricem_env.judge.rubrics.rubric_set import RubricSet
from rubricem_records.bank.bank_items import Retrieved
from rubricem_records.rollouts.packed_tokens import pack_tokens
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.run_record import GroupEntry, RolloutEntry, ShownLesson


def record_group(
    judged: GroupJudgement,
    rollouts: Sequence[Rollout],
    credit: Credit,
    *,
    rubrics: RubricSet,
    encounter: str,
    question: str,
    seen: Sequence[Sequence[Retrieved]],
    true: Sequence[Sequence[float]] = (),
    place: int = 0,
    first_row: int = 0,
) -> tuple[GroupEntry, list[RolloutEntry]]:
    """One question of a step and its attempts: as they were judged, what each was worth, and whether an update uses it.

    `rubrics` as the judgement has left them, `seen` the lessons that stood before each attempt; the group's rows in
    `credit` begin at `first_row`. `true` has the true quality of each attempt, where it is known.
    """
    group = GroupEntry(
        step=judged.step,
        place=place,
        curriculum_step=judged.step,
        encounter=encounter,
        query_key=judged.query_key,
        question=question,
        judge=judged.judge,
        rubrics=judged.rubrics,
        active=rubrics.active,
        retired=tuple(gone for gone in rubrics.archive if gone.retired_step == judged.step),
        refused=judged.refused,
        proposal_failure=judged.proposal_failure,
        lessons=_shown_lessons(seen),
    )
    entries = []
    for attempt, (rollout, outcome) in enumerate(zip(rollouts, judged.rollouts, strict=True)):
        row = first_row + attempt
        tokens = rollout.tokens
        entry = RolloutEntry(
            step=judged.step,
            place=place,
            attempt=attempt,
            rollout=rollout.model_copy(update={"tokens": None}),
            tokens=pack_tokens(tokens) if tokens is not None else None,
            judged=outcome,
            true=tuple(true[attempt]) if true else None,
            returns=tuple(credit.returns[row].tolist()),
            advantages=tuple(credit.advantages[row].tolist()),
            # An attempt without a token of its own has nothing to train.
            trained=bool(credit.trainable[row]) and tokens is not None and bool(tokens.policy_mask.any()),
        )
        entries.append(entry)
    return group, entries


def _shown_lessons(seen: Sequence[Sequence[Retrieved]]) -> tuple[ShownLesson, ...]:
    """The lessons of a group, most similar first, each with the attempts that saw it."""
    similarities = {hit.item.id: hit.similarity for hits in seen for hit in hits}
    attempts = {
        number: tuple(attempt for attempt, hits in enumerate(seen) if any(hit.item.id == number for hit in hits))
        for number in similarities
    }
    return tuple(
        ShownLesson(item=number, similarity=round(similarity, 4), attempts=attempts[number])
        for number, similarity in sorted(similarities.items(), key=lambda pair: (-pair[1], pair[0]))
    )
