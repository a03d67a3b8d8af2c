"""Judges groups, serves lessons from the bank, and runs reflections in the background: one service for a whole run.

Rollouts of a group are submitted one by one and wait for the last one; then the group is judged and each gets its
scores. Other groups continue to be sampled meanwhile.
"""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rubricem_agent.build.memory import build_bank, build_injector
from rubricem_agent.build.models import build_judge
from rubricem_agent.learn.credit import Credit
from rubricem_agent.learn.curriculum import Encounter
from rubricem_agent.learn.deferred import Deferred, Ticket
from rubricem_agent.learn.record import four_numbers, group_entry, rollout_entry
from rubricem_agent.memory.bank import Retrieval, Retrieved
from rubricem_agent.policy.local import load_tokenizer
from rubricem_agent.reflection.reflector import (
    JudgedAttempt,
    ReflectionOutcome,
    Reflector,
    judged_attempts,
    mean_utility,
    readable_share,
)
from rubricem_agent.rollout.rollout import Rollout
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import JudgeError, RubricEMError, UsageError
from rubricem_env.judge.base import Group, Judge, ReflectionJudge
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics import RubricBuffer
from rubricem_env.judge.scoring import GroupJudgement, group_scores
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.judge import AlmanacJudge, true_quality
from trainers.settings import with_run_seed
from trainers.verl_backend.checkpoint import ServiceState, check_identity, load_service, save_service
from trainers.verl_backend.engine_policy import EnginePolicy
from trainers.verl_backend.reporting import GroupRecord
from trainers.verl_backend.rows import RolloutScores, ScheduledQuery
from trainers.verl_backend.settings import VerlSettings, load_training_questions

NO_SCORES = RolloutScores((0.0, 0.0, 0.0, 0.0), (None, None, None, None), is_valid=False)


class JudgeService:
    """All methods run on one event loop."""

    def __init__(self, settings: VerlSettings, *, model: Path, group_size: int) -> None:
        """Build judge, bank and tokenizer.

        Raises:
            ConfigError: a setting names something unknown, or the model's folder has no tokenizer.
            MissingExtraError: a package that a setting needs is not installed.
        """
        self.settings = settings = with_run_seed(settings, settings.seed)
        self.group_size = group_size
        self.tokenizer = load_tokenizer(model)
        judge, self._reflection_judge = _judges(settings)
        self.judge = StepJudge(judge, RubricBuffer(), settings=settings.judge.settings)
        self.bank = build_bank(settings.bank)
        self._injector = build_injector(settings.bank, self.tokenizer.count)
        self._truth = load_training_questions(settings)[1]
        self._groups: dict[str, tuple[dict[int, Rollout], asyncio.Future[list[RolloutScores]]]] = {}
        """Incomplete groups: the rollouts submitted so far, by their index, and the scores of all."""
        self._attempts: dict[Ticket, Sequence[JudgedAttempt]] = {}
        """The judged groups of the reflections that are pending."""
        self._launched: set[Ticket] = set()
        self._shown: dict[Ticket, Sequence[Retrieved]] = {}
        """Lessons in the prompts of the questions that are being sampled."""
        self._references: dict[tuple[Ticket, Encounter], asyncio.Future[str]] = {}
        self._record: GroupRecord | None = None
        self._reflector: Reflector | None = None
        self._fault = ""
        self._scored: list[str] = []
        """Groups that got their scores since the last checkpoint."""
        self._may_score = asyncio.Event()
        self._may_score.set()
        self.reflections = Deferred(
            self._reflect,
            encode=lambda outcome: outcome.model_dump(mode="json"),
            decode=lambda form: ReflectionOutcome.model_validate(form, strict=False),
            has_lesson=lambda outcome: outcome.has_lesson,
        )

    async def open(self, client: Any) -> None:
        """Sample reflections from the engines behind veRL's `client`; those pending in a checkpoint start again."""
        policy = EnginePolicy(client, self.tokenizer, max_length=self.settings.reflection.total_tokens)
        self._reflector = Reflector(
            policy,
            self._reflection_judge,
            self.bank,
            settings=self.settings.reflection,
            version=lambda: policy.versions(default=0)[1],
        )
        self.reflections.relaunch()

    async def references(self, scheduled: ScheduledQuery) -> str:
        """The block of lessons to show before the question; "" without any.

        Lessons of other questions at a new encounter, the question's own at a repeat (choices C11-C13). Retrieved once:
        all attempts of a group see the same lessons.
        """
        if not self.settings.meta_policy:
            return ""
        key = _key(scheduled)
        if key not in self._references:
            self._references[key] = asyncio.ensure_future(self._retrieve(scheduled))
        # Shielded: cancelling one attempt must not cancel the others' lessons.
        return await asyncio.shield(self._references[key])

    async def _retrieve(self, scheduled: ScheduledQuery) -> str:
        mode: Retrieval = "cross" if scheduled.encounter == "new" else "within"
        if mode == "within":
            await self.reflections.wait(scheduled.query.key, timeout=self.settings.time_limits.lesson)
        lessons = await asyncio.to_thread(self.bank.retrieve, scheduled.query.question, mode)
        injection = self._injector.inject("", lessons, mode)
        self._shown[_key(scheduled)[0]] = injection.shown
        return injection.block

    async def submit(self, scheduled: ScheduledQuery, rollout: Rollout, *, group: str, index: int) -> RolloutScores:
        """Wait until the group is complete and judged; returns the scores of this rollout.

        `group` names the group, one for each encounter of a question; `index` counts its rollouts from 0.
        """
        if group not in self._groups:
            self._groups[group] = ({}, asyncio.get_running_loop().create_future())
        submitted, scores = self._groups[group]
        submitted[index] = rollout
        if len(submitted) == self.group_size:
            del self._groups[group]
            judged = await self._judge_group(scheduled, [one for _, one in sorted(submitted.items())], name=group)
            await self._may_score.wait()
            self._scored.append(group)
            scores.set_result(judged)
        # Shielded: cancelling one rollout must not cancel its group's scores.
        return (await asyncio.shield(scores))[index]

    async def collect(self, step: int) -> tuple[list[ReflectionOutcome], dict[str, Any]]:
        """The finished reflections of earlier steps, and their metrics. Never waits.

        Raises:
            JudgeError: judging cannot continue, such as with a budget that is used up.
        """
        if self._fault:
            raise JudgeError(self._fault)
        done, failed = self.reflections.collect(step=step)
        self._attempts = {ticket: self._attempts[ticket] for ticket in self.reflections.pending}
        outcomes = [outcome for _, outcome in done]
        return outcomes, {
            "utility": mean_utility(outcomes),
            "readable": readable_share(outcomes),
            "staleness": [step - ticket.step for ticket, _ in done],
            "failed_reflections": [f"{ticket}: {reason}" for ticket, reason in failed],
            "pending_reflections": len(self.reflections.pending),
            "bank": len(self.bank),
        }

    async def drain(self) -> None:
        """Wait for all reflections: for the synchronous mode, whose engines must be idle between steps."""
        await self.reflections.drain()

    async def save(self, root: Path, *, step: int, stream: dict[str, Any], identity: dict[str, Any]) -> tuple[str, ...]:
        """Write the checkpoint of a step: the states of the service and of the question stream, under one manifest.

        Until `resume_scoring` no group gets its scores: veRL saves its queue in between, and both must agree on which
        groups are judged. Returns the groups scored since the last checkpoint, which the queue has to contain first.
        """
        self._may_score.clear()
        # No reflection may enter the bank, which is written last, after the others were counted as pending.
        async with self._reflector.writing if self._reflector is not None else nullcontext():
            scored, self._scored = tuple(self._scored), []
            state = ServiceState(
                judge=self.judge.state_dict(),
                deferred=self.reflections.state_dict(),
                waiting={ticket: self._attempts[ticket] for ticket in self.reflections.pending},
                noted=self._record.state_dict() if self._record is not None else {},
                stream=stream,
            )
            await asyncio.to_thread(save_service, root, state, bank=self.bank, step=step, identity=identity)
        return scored

    async def resume_scoring(self) -> None:
        """Give out scores again: the checkpoint is complete."""
        self._may_score.set()

    async def load(self, root: Path, *, step: int, identity: dict[str, Any]) -> dict[str, Any]:
        """Load the checkpoint of a step; returns the state of the question stream. Call `open` afterwards.

        Raises:
            UsageError: there is none for that step, it is damaged, or it belongs to a run with other settings.
        """
        checkpoint = check_identity(root, step=step, identity=identity)
        with checkpoint.restoring():
            state = load_service(checkpoint, self.bank)
            self.judge.load_state_dict(state.judge)
            self.reflections.load_state_dict(state.deferred)
            self._attempts = dict(state.waiting)
            self._launched = state.launched
            if self._record is not None:
                self._record.load_state_dict(state.noted)
        return state.stream

    async def begin_record(self, run: Path, step: int) -> None:
        """Record groups in the run's folder, after `step`. Call it before `load`.

        Raises:
            UsageError: the folder cannot be written.
        """
        self._record = GroupRecord(run, self.bank)
        await asyncio.to_thread(self._record.begin, step, self.tokenizer)

    async def record(self, step: int, rollouts: Sequence[tuple[str, int]], credit: Credit) -> None:
        """Write the groups that a step trains on; nothing where no record is kept.

        `rollouts` are group and index of each row of the credit.

        Raises:
            UsageError: the disk refuses.
        """
        if self._record is not None:
            await asyncio.to_thread(self._record.write, step, rollouts, credit)

    async def _judge_group(
        self, scheduled: ScheduledQuery, rollouts: Sequence[Rollout], *, name: str
    ) -> list[RolloutScores]:
        """Judge a complete group. A bug or a used-up budget scores nothing, and is raised by the next `collect`."""
        key = _key(scheduled)
        ticket = key[0]
        self._references.pop(key, None)
        group = Group.of(scheduled.query, (rollout.reading for rollout in rollouts))
        try:
            judged = await self.judge.judge_group(group, step=scheduled.step)
        except RubricEMError as fault:
            self._fault = self._fault or str(fault)
            return [NO_SCORES._replace(failure=str(fault))] * len(rollouts)
        scores = self._scores(rollouts, group, judged)
        # A group whose rollouts all failed has no lesson; a resumed run samples it again and may launch it then. A
        # reflection that a resumed run has already launched is not launched twice.
        is_new = scheduled.encounter == "new" and ticket not in self._launched
        if self.settings.meta_policy and is_new and any(one.is_valid for one in scores):
            self._launched.add(ticket)
            self._attempts[ticket] = judged_attempts(group, judged)
            self.reflections.launch(ticket)
        shown = self._shown.pop(ticket, ())
        if self._record is not None:
            entry = group_entry(
                judged,
                self.judge.buffer.rubrics(judged.query_key),
                place=0,
                encounter=scheduled.encounter,
                question=scheduled.query.question,
                shown=shown,
            )
            entries = [
                rollout_entry(entry, rollout, outcome, attempt=index, true=one.true)
                for index, (rollout, outcome, one) in enumerate(zip(rollouts, judged.rollouts, scores, strict=True))
            ]
            self._record.add(name, entry, entries)
        return scores

    def _scores(self, rollouts: Sequence[Rollout], group: Group, judged: GroupJudgement) -> list[RolloutScores]:
        matrix, valid, scored = group_scores(judged.judgements, self.settings.fallback)
        truth = self._truth.get(group.key)
        scores = []
        for index, (rollout, outcome) in enumerate(zip(rollouts, judged.rollouts, strict=True)):
            plan, research, review, answer = (outcome.judgement.score(stage) for stage in STAGES)
            is_valid = bool(valid[index]) and rollout.is_valid
            scores.append(
                RolloutScores(
                    four_numbers(matrix[index].tolist()),
                    judged=(plan, research, review, answer),
                    is_valid=is_valid,
                    failure="" if is_valid else rollout.failure or outcome.failure or "the judge gave no score",
                    true=four_numbers(true_quality(truth, group.readings[index])) if truth is not None else None,
                    scored=tuple(scored[index].tolist()),
                )
            )
        return scores

    async def _reflect(self, ticket: Ticket) -> ReflectionOutcome:
        if self._reflector is None:
            raise UsageError("the judge service has no engine to reflect with; call open() first.")
        return await self._reflector.reflect(self._attempts[ticket], step=ticket.step)


def _judges(settings: VerlSettings) -> tuple[Judge, ReflectionJudge]:
    if settings.almanac is not None:
        questions = load_questions(shipped_questions_path())
        judge = AlmanacJudge(questions, knobs=settings.almanac.knobs, seed=settings.seed)
        return judge, judge
    built = build_judge(settings.judge)
    return built.judge, built.reflection_judge


def _key(scheduled: ScheduledQuery) -> tuple[Ticket, Encounter]:
    return Ticket(scheduled.step, scheduled.query.key), scheduled.encounter
