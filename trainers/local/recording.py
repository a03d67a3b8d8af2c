"""What a local run writes down to be looked at: each step's groups and rollouts, and what became of the bank."""

from collections.abc import Mapping, Sequence

from rubricem_agent.learn.credit import Credit
from rubricem_agent.learn.curriculum import QueryBatch
from rubricem_agent.learn.run_record import FourNumbers, GroupEntry, RolloutEntry, ShownLesson
from rubricem_agent.memory.retrieval import Retrieved
from rubricem_agent.rollout.packed_tokens import pack_tokens
from rubricem_agent.rollout.rollout import Rollout
from rubricem_env.judge.outcomes import GroupJudgement, RolloutJudgement
from rubricem_env.scaffold.reading import read_trajectory
from rubricem_env.world.quality import true_quality
from trainers.local.run_parts import Parts


def begin_record(parts: Parts, step: int) -> None:
    """Go on with the record after `step`, the last one that is not done again."""
    recorder = parts.recorder
    if recorder is None:
        return
    recorder.begin(step, embedder=parts.bank.embedder_name)
    tokenizer = parts.policy.tokenizer
    recorder.record_vocabulary(lambda: [tokenizer.decode([token_id]) for token_id in range(tokenizer.size)])


def record_step(
    parts: Parts,
    batch: QueryBatch,
    groups: Sequence[Sequence[Rollout]],
    *,
    judgements: Sequence[GroupJudgement],
    credit: Credit,
    shown: Mapping[str, Sequence[Retrieved]],
) -> None:
    """Write down a step, after it was credited; rows of the credit are the rollouts, group by group."""
    if parts.recorder is None:
        return
    rows = iter(range(len(credit.returns)))
    entries = []
    for place, (rollouts, judgement) in enumerate(zip(groups, judgements, strict=True)):
        group = _group(parts, batch, judgement, place=place, shown=shown)
        pairs = zip(rollouts, judgement.rollouts, strict=True)
        entries.append(
            (group, [_rollout(parts, group, pair, credit, attempt, next(rows)) for attempt, pair in enumerate(pairs)])
        )
    parts.recorder.record_step(entries)
    parts.recorder.record_lessons(parts.bank.changed_since(parts.recorder.bank_revision), step=batch.step)


def _group(
    parts: Parts, batch: QueryBatch, judgement: GroupJudgement, *, place: int, shown: Mapping[str, Sequence[Retrieved]]
) -> GroupEntry:
    rubrics = parts.judge.buffer.rubrics(judgement.query_key)
    return GroupEntry(
        step=batch.step,
        place=place,
        encounter=batch.encounter.value,
        query_key=judgement.query_key,
        question=parts.train[judgement.query_key].question,
        judge=judgement.judge,
        rubrics=judgement.rubrics,
        active=rubrics.active,
        retired=tuple(gone for gone in rubrics.archive if gone.retired_step == batch.step),
        refused=judgement.refused,
        proposal_failure=judgement.proposal_failure,
        lessons=tuple(
            ShownLesson(item=hit.item.id, similarity=round(hit.similarity, 4))
            for hit in shown.get(judgement.query_key, ())
        ),
    )


def _rollout(
    parts: Parts, group: GroupEntry, pair: tuple[Rollout, RolloutJudgement], credit: Credit, attempt: int, row: int
) -> RolloutEntry:
    rollout, judged = pair
    plan, research, review, answer = true_quality(parts.train[group.query_key], read_trajectory(rollout.trajectory))
    return RolloutEntry(
        step=group.step,
        place=group.place,
        attempt=attempt,
        rollout=rollout.model_copy(update={"tokens": None}),
        tokens=pack_tokens(rollout.tokens) if rollout.tokens is not None else None,
        judged=judged,
        true=(plan, research, review, answer),
        returns=_four(credit.returns[row].tolist()),
        advantages=_four(credit.advantages[row].tolist()),
        trained=bool(credit.trainable[row]),
    )


def _four(numbers: Sequence[float]) -> FourNumbers:
    plan, research, review, answer = numbers
    return plan, research, review, answer
