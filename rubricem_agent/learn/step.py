"""The parts of a training step that every trainer shares, in the order in which a step takes them.

    retrieve_lessons       what the bank offers a question at this encounter, and to which attempts
    measure_lessons        what the scores of the attempts say about the lessons
    credit_rollouts        the credit of judged rollouts, and the advantage of each of their tokens
    credit_groups          the same groups as the record has them, with judgement, truth and credit
    record_groups          writes them, and the bank's changes, into the run's record
    describe_groups        their share of the step's line in the log
    collect_reflections    the reflections that Phase A trains on, and their share of the line

A trainer samples the rollouts, calls the judge and updates the weights itself.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.credit import Credit, CreditSettings, credit_judged
from rubricem_agent.learn.curriculum import Encounter, OnMiss, retrieval_at
from rubricem_agent.learn.deferred import Deferred
from rubricem_agent.learn.padding import pad_rows
from rubricem_agent.learn.record_group import record_group
from rubricem_agent.learn.rollout_statistics import measure_rollouts, measure_tokens
from rubricem_agent.learn.stage_metrics import mean_by_stage, spread_shares
from rubricem_agent.memory.bank import Retrieval, RubricBank
from rubricem_agent.memory.inject import NO_LESSONS, Block, Injector
from rubricem_agent.memory.probation import GuidedScore, draw_attempts
from rubricem_agent.policy.tokens import PolicyTokenizer
from rubricem_agent.reflection.reflector import ReflectionOutcome, measure_reflections
from rubricem_env.domain.base import STAGES, Frozen
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet
from rubricem_env.judge.group import Group
from rubricem_env.judge.judgements import GroupJudgement
from rubricem_env.judge.outage import refuse_outage
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.world.judge import WorldQuestion, true_quality
from rubricem_records.bank.bank_items import Retrieved
from rubricem_records.rollouts.rollout_tokens import NO_STAGE
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.run_record import GroupEntry, RolloutEntry
from rubricem_records.rollouts.run_recorder import RunRecorder


class ProbationTrial(NamedTuple):
    """A lesson on probation, and the attempts that see it."""

    lesson: Retrieved
    attempts: frozenset[int]


class Lessons(NamedTuple):
    """Lessons for the guided attempts at a question, and how the bank was asked for them."""

    items: tuple[Retrieved, ...]
    """The active ones, which all guided attempts see."""
    retrieval: Retrieval
    guided: frozenset[int]
    """The attempts that see lessons."""
    trials: tuple[ProbationTrial, ...] = ()

    def of_attempt(self, attempt: int) -> tuple[Retrieved, ...]:
        """The lessons that an attempt sees."""
        if attempt not in self.guided:
            return ()
        return (*self.items, *(trial.lesson for trial in self.trials if attempt in trial.attempts))

    def blocks(self, injector: Injector, attempts: int) -> list[Block]:
        """The block before each of so many attempts; equal lessons are rendered once."""
        rendered: dict[tuple[int, ...], Block] = {(): NO_LESSONS}
        blocks = []
        for attempt in range(attempts):
            hits = self.of_attempt(attempt)
            key = tuple(hit.item.id for hit in hits)
            if key not in rendered:
                rendered[key] = injector.render(hits, self.retrieval)
            blocks.append(rendered[key])
        return blocks


def retrieve_lessons(
    bank: RubricBank, question: str, *, encounter: Encounter, on_miss: OnMiss, guided: Collection[int], seed: int
) -> Lessons:
    """Lessons of similar questions at a new encounter, the question's own lesson at a repeat.

    A repeat whose own lesson failed or is late gets none, or with `on_miss` "cross" those of similar questions. Lessons
    on probation are given to a share of the `guided` attempts, drawn by `seed`, which is the question's at this step.
    """
    retrieval = retrieval_at(encounter)
    items = bank.retrieve(question, retrieval)
    tried = bank.retrieve_on_probation(question, retrieval)
    if not items and not tried and on_miss == "cross":
        retrieval = "cross"
        items = bank.retrieve(question, retrieval)
        tried = bank.retrieve_on_probation(question, retrieval)
    share = bank.probation.share if bank.probation is not None else 0.0
    trials = tuple(
        ProbationTrial(hit, draw_attempts(sorted(guided), share, seed=seed, item=hit.item.id)) for hit in tried
    )
    return Lessons(items, retrieval, frozenset(guided), trials)


AttemptLessons = Sequence[Sequence[Retrieved]]
"""The lessons that stood before each attempt of a group."""


def measure_lessons(
    bank: RubricBank, question: str, judged: GroupJudgement, seen: AttemptLessons, *, step: int
) -> None:
    """Tell the bank how the attempts of a group scored, so that it can admit or withdraw the lessons that they saw.

    Attempts that the judge could not score say nothing. A score is the mean of the stages that have one.
    """
    bank.retire(step)
    attempts = []
    for outcome, hits in zip(judged.rollouts, seen, strict=True):
        scores = [score for score in outcome.judgement.scores if score is not None]
        if outcome.is_valid and scores:
            attempts.append(GuidedScore(frozenset(hit.item.id for hit in hits), float(np.mean(scores))))
    bank.record_scores(question, attempts)


class CreditedRollouts(NamedTuple):
    """The credit of rollouts, group by group, and what it is for each token."""

    credit: Credit
    token_advantages: npt.NDArray[np.float32]
    """(rollouts, tokens): 0 where the policy did not write, padded on the right to the longest rollout."""


def credit_rollouts(
    rollouts: Sequence[Sequence[Rollout]],
    judgements: Sequence[GroupJudgement],
    *,
    settings: CreditSettings,
    gains: npt.ArrayLike | None = None,
    stage_set: StageSet = DEEP_RESEARCH,
) -> CreditedRollouts:
    """The credit of judged rollouts, of a whole step or of one group. IGPO alone needs `gains`, as in `ScoredBatch`."""
    flat = [rollout for group in rollouts for rollout in group]
    stages = [rollout.tokens.stage_ids if rollout.tokens else () for rollout in flat]
    stage_ids = pad_rows(stages, NO_STAGE, dtype=np.int8)
    credit = credit_judged(
        [judgement for group in judgements for judgement in group.judgements],
        groups=np.repeat(np.arange(len(rollouts)), [len(group) for group in rollouts]),
        valid=[rollout.is_valid for rollout in flat],
        stage_ids=stage_ids,
        settings=settings,
        gains=gains,
        stage_set=stage_set,
    )
    return CreditedRollouts(credit, credit.spread(stage_ids))


class CreditedGroup(Frozen):
    """A group that was judged and credited, as the record has it."""

    group: GroupEntry
    rollouts: tuple[RolloutEntry, ...]
    fallbacks: int
    """Rollouts in which scoring a stage failed, so that the group's mean stands in."""

    def taken(self, step: int, place: int) -> "CreditedGroup":
        """The group as one of the step that trains on it, which is later than its own where steps are sampled ahead."""
        position = {"step": step, "place": place}
        rollouts = tuple(rollout.model_copy(update=position) for rollout in self.rollouts)
        return self.model_copy(update={"group": self.group.model_copy(update=position), "rollouts": rollouts})

    @property
    def failures(self) -> list[str]:
        """Why each rollout is left out of its group, in one sentence; "" where it is valid."""
        return [
            "" if entry.is_valid else entry.rollout.failure or entry.judged.failure or "the judge gave no score"
            for entry in self.rollouts
        ]


def credit_groups(
    groups: Sequence[Group],
    rollouts: Sequence[Sequence[Rollout]],
    judgements: Sequence[GroupJudgement],
    credit: Credit,
    *,
    encounter: Encounter,
    buffer: RubricBuffer,
    lessons: Mapping[str, AttemptLessons],
    truth: Mapping[str, WorldQuestion],
) -> list[CreditedGroup]:
    """The groups with all that the record says of them; the rows of `credit` follow the rollouts, group by group.

    `buffer` has the rubrics as the judgements left them. `lessons` are those that stood before the attempts at a
    question, and `truth` is the truth about it, both by query key; a question without truth has no true quality.
    """
    credited = []
    first_row = 0
    for place, (group, attempts, judgement) in enumerate(zip(groups, rollouts, judgements, strict=True)):
        question = truth.get(group.key)
        entry, entries = record_group(
            judgement,
            attempts,
            credit,
            rubrics=buffer.rubrics(judgement.query_key),
            encounter=encounter,
            question=group.query.question,
            seen=lessons.get(group.key) or [()] * len(attempts),
            true=[true_quality(question, parsed) for parsed in group.trajectories] if question is not None else (),
            place=place,
            first_row=first_row,
        )
        filled = np.any(credit.filled[first_row : first_row + len(attempts)], axis=1).tolist()
        fallbacks = sum(row.is_valid and is_filled for row, is_filled in zip(entries, filled, strict=True))
        credited.append(CreditedGroup(group=entry, rollouts=tuple(entries), fallbacks=fallbacks))
        first_row += len(attempts)
    return credited


def begin_record(recorder: RunRecorder | None, step: int, *, tokenizer: PolicyTokenizer, bank: RubricBank) -> None:
    """Resume the record after `step`, the last one that is not repeated, if a run keeps one."""
    if recorder is None:
        return
    recorder.begin(step, embedder=bank.embedder_name)
    recorder.record_vocabulary(lambda: [tokenizer.decode([token]) for token in range(tokenizer.size)])


def record_groups(
    recorder: RunRecorder | None, groups: Sequence[CreditedGroup], *, bank: RubricBank, step: int
) -> None:
    """Write the groups of a step, and what changed in the bank since the last one, into the record, if a run keeps one.

    Raises:
        UsageError: the disk refuses.
    """
    if recorder is None:
        return
    recorder.record_step([(credited.group, credited.rollouts) for credited in groups])
    recorder.record_lessons(bank.contents(since=recorder.bank_revision), step=step)


def describe_groups(groups: Sequence[CreditedGroup]) -> dict[str, Any]:
    """What a step's line says of its groups: means and counts over all rollouts, also those that train nothing."""
    entries = [entry for group in groups for entry in group.rollouts]
    stages = entries[0].judged.judgement.stages if entries else STAGES
    true = mean_by_stage([entry.true for entry in entries if entry.true is not None], stages)
    # The entries carry no tokens but their packed form.
    of_tokens = measure_tokens([entry.tokens for entry in entries if entry.tokens is not None])
    rollout_stats = measure_rollouts([[entry.rollout for entry in entries]]).model_copy(update=of_tokens)
    spread = spread_shares([[entry.judged.judgement for entry in group.rollouts] for group in groups], stages)
    return {
        # A step that was sampled ahead can mix two of the curriculum.
        "encounter": " and ".join(sorted({credited.group.encounter for credited in groups})),
        "curriculum": sorted({credited.group.curriculum_step for credited in groups}),
        # Empty for questions without truth.
        "true": {stage: value for stage, value in true.items() if value is not None},
        "judged": mean_by_stage([entry.judged.judgement.scores for entry in entries], stages),
        "spread": {stage: round(share, 4) for stage, share in spread.items()},
        "rollout_stats": rollout_stats.model_dump(exclude_none=True),
        "lost": sum(not entry.is_valid for entry in entries),
        "failed_proposals": sum(bool(credited.group.proposal_failure) for credited in groups),
        "failed_scores": sum(bool(entry.judged.failure) for entry in entries),
        "trained_rollouts": sum(entry.trained for entry in entries),
        "fallbacks": sum(group.fallbacks for group in groups),
    }


def refuse_lost_proposals(groups: Sequence[CreditedGroup], *, limit: float, way_out: str) -> None:
    """Stop a step in which proposing rubrics failed for more than the share `limit` of its groups.

    Raises:
        JudgeError: the message counts them and quotes the first reason.
    """
    failures = [credited.group.proposal_failure for credited in groups if credited.group.proposal_failure]
    refuse_outage(failures, len(groups), limit=limit, way_out=way_out, of="proposals")


class CollectedReflections(NamedTuple):
    """The reflections that a step trains on."""

    outcomes: list[ReflectionOutcome]
    line: dict[str, Any]
    """What the step's line says of them."""


def collect_reflections(
    reflections: Deferred[ReflectionOutcome], *, step: int, refused_rubrics: Mapping[str, int]
) -> CollectedReflections:
    """The reflections of earlier steps that ended since the last call; never waits for one.

    `refused_rubrics` are the rubrics that the gate refused since then, by reason.
    """
    done, failed = reflections.collect(step=step)
    outcomes = [outcome for _, outcome in done]
    return CollectedReflections(
        outcomes,
        {
            **measure_reflections(outcomes, refused_rubrics),
            "staleness": [step - ticket.step for ticket, _ in done],
            "failed_reflections": [f"{ticket}: {reason}" for ticket, reason in failed],
            "pending_reflections": len(reflections.pending),
        },
    )
