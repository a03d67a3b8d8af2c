"""What a local run writes down to be looked at: each step's groups and rollouts, and what became of the bank.

How good the policy is on held-out questions, by truth; the bank is off, as in the paper's main results.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rubricem_agent.learn.credit import Credit
from rubricem_agent.learn.curriculum import QueryBatch
from rubricem_agent.learn.metrics import append_line
from rubricem_agent.learn.record import GroupEntry, RolloutEntry, credited, four_numbers, group_entry, rollout_entry
from rubricem_agent.memory.bank import Retrieved
from rubricem_agent.policy.base import Opening, Sampling
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.run import RolloutPlan, Setting, run_groups
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.research_env import query_of
from rubricem_env.judge.scoring import GroupJudgement, RolloutJudgement
from rubricem_env.scaffold.grammar import ValidationMode
from rubricem_env.scaffold.reading import read_trajectory
from rubricem_env.world.judge import TrueQuality, true_quality
from rubricem_env.world.questions import Question
from trainers.local.setup import Parts


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
    return group_entry(
        judgement,
        parts.judge.buffer.rubrics(judgement.query_key),
        place=place,
        encounter=batch.encounter.value,
        question=parts.train[judgement.query_key].question,
        shown=shown.get(judgement.query_key, ()),
    )


def _rollout(
    parts: Parts, group: GroupEntry, pair: tuple[Rollout, RolloutJudgement], credit: Credit, attempt: int, row: int
) -> RolloutEntry:
    rollout, judged = pair
    true = true_quality(parts.train[group.query_key], read_trajectory(rollout.trajectory))
    return credited(
        rollout_entry(group, rollout, judged, attempt=attempt, true=four_numbers(true)),
        returns=credit.returns[row].tolist(),
        advantages=credit.advantages[row].tolist(),
        trained=bool(credit.trainable[row]),
    )


class HeldOutScores(NamedTuple):
    """Means over the held-out questions."""

    quality: TrueQuality
    valid: float
    """Accepted by strict mode."""


def record_examination(log: Path, step: int, found: HeldOutScores) -> None:
    """Write what a step's policy was found to be into the run's log, and say it."""
    append_line(log, {"step": step, "held_out": found.quality._asdict(), "valid": found.valid})
    sys.stdout.write(f"step {step}: held-out answers {found.quality.answer:.3f} by truth, {found.valid:.0%} valid\n")


async def examine(parts: Parts, questions: tuple[Question, ...], *, temperature: float = 0.0) -> HeldOutScores:
    """One episode for each question, greedy unless told otherwise."""

    async def opened(query: Query) -> tuple[Opening, str]:
        return parts.prompt.opening(query), parts.prompt.hash

    sampling = Sampling(temperature=temperature, max_turn_tokens=parts.config.max_turn_tokens)
    plan = RolloutPlan([query_of(question) for question in questions], opened, group_size=1, seed=parts.config.seed)
    groups = await run_groups(plan, Setting(parts.policy, parts.toolbox, parts.config.limits, sampling))
    readings = [read_trajectory(group[0].trajectory) for group in groups]
    qualities = [true_quality(question, reading) for question, reading in zip(questions, readings, strict=True)]
    valid = float(np.mean([not reading.rejects(ValidationMode.STRICT) for reading in readings]))
    return HeldOutScores(TrueQuality(*np.mean(qualities, axis=0).tolist()), valid)
