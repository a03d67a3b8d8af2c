"""What judges, remembers and reflects in a run on veRL, put together from its settings.

The desk: judges groups as they come in, lends lessons, and has reflections written behind the training.

One desk serves a whole run, beside the trainer. Rollouts of a group are handed in one by one and wait for the last;
then the group is judged, and every one of them gets its marks. Nothing here holds up the sampling of other groups.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rubricem_agent.build.memory import build_bank, build_injector
from rubricem_agent.build.models import build_judge
from rubricem_agent.learn.credit import group_scores
from rubricem_agent.learn.curriculum import Encounter
from rubricem_agent.learn.deferred import Codec, Deferred, DeferredTiming, Ticket
from rubricem_agent.learn.record import four_numbers, group_entry, rollout_entry
from rubricem_agent.memory.bank import Retrieval, Retrieved, RubricBank
from rubricem_agent.memory.inject import Injector
from rubricem_agent.policy.local import load_tokenizer
from rubricem_agent.policy.tokens import PolicyTokenizer
from rubricem_agent.reflection.candidates import PolicyCandidates
from rubricem_agent.reflection.reflector import JudgedAttempt, ReflectionOutcome, Reflector, judged_attempts
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import OrderError, RubricEMError
from rubricem_env.judge.base import Group, Judge, ReflectionJudge
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics import RubricBuffer
from rubricem_env.judge.scoring import GroupJudgement
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.judge import AlmanacJudge, true_quality
from rubricem_env.world.questions import Question
from trainers.settings import with_run_seed
from trainers.verl_backend.checkpoint import DeskState, keep_desk, resume_desk
from trainers.verl_backend.engine_policy import EnginePolicy, TokenClient
from trainers.verl_backend.reporting import DeskRecord
from trainers.verl_backend.rows import Handed, Marks, Meeting, RolloutCredit, TrainableReflections
from trainers.verl_backend.settings import VerlSettings, load_training_questions


class DeskParts(NamedTuple):
    """Everything that the desk works with, but for the engine that reflections are drawn from."""

    settings: VerlSettings
    group_size: int
    tokenizer: PolicyTokenizer
    judge: StepJudge
    reflection_judge: ReflectionJudge
    bank: RubricBank
    injector: Injector
    almanac: dict[str, Question]
    timing: DeferredTiming


def make_desk_parts(settings: VerlSettings, *, model: Path, group_size: int) -> DeskParts:
    """Build everything, at its beginning.

    Raises:
        ConfigError: a setting names what there is not, or the model's folder has no tokenizer.
        MissingExtraError: a package that a setting needs is not installed.
    """
    settings = with_run_seed(settings, settings.seed)
    tokenizer = load_tokenizer(model)
    judge, reflection_judge = _judges(settings)
    return DeskParts(
        settings=settings,
        group_size=group_size,
        tokenizer=tokenizer,
        judge=StepJudge(judge, RubricBuffer(), settings=settings.judge.settings),
        reflection_judge=reflection_judge,
        bank=build_bank(settings.bank),
        injector=build_injector(settings.bank, tokenizer.count),
        almanac=load_training_questions(settings).almanac,
        timing=DeferredTiming(time.monotonic, asyncio.sleep),
    )


def _judges(settings: VerlSettings) -> tuple[Judge, ReflectionJudge]:
    if settings.almanac is not None:
        questions = load_questions(shipped_questions_path())
        judge = AlmanacJudge(questions, knobs=settings.almanac.knobs, seed=settings.seed)
        return judge, judge
    built = build_judge(settings.judge)
    return built.judge, built.reflection_judge


NO_MARKS = Marks((0.0, 0.0, 0.0, 0.0), (None, None, None, None), is_valid=False)


class _Group:
    """A group that is coming in."""

    def __init__(self) -> None:
        self.handed: dict[int, Handed] = {}
        self.marks: asyncio.Future[list[Marks]] = asyncio.get_running_loop().create_future()


class JudgeService:
    """All methods run on one event loop."""

    def __init__(self, parts: DeskParts) -> None:
        self._parts = parts
        self._groups: dict[str, _Group] = {}
        self._waiting: dict[Ticket, Sequence[JudgedAttempt]] = {}
        self._launched: set[Ticket] = set()
        self._shown: dict[Ticket, Sequence[Retrieved]] = {}
        """Lessons that stand before the questions that are being played."""
        self._lent: dict[tuple[Ticket, Encounter], asyncio.Future[str]] = {}
        self._record: DeskRecord | None = None
        self._reflector: Reflector | None = None
        self._fault = ""
        self._marked: list[str] = []
        self._gives_marks = asyncio.Event()
        self._gives_marks.set()
        self._deferred = Deferred(
            self._reflect,
            codec=Codec[ReflectionOutcome](
                encode=lambda outcome: outcome.model_dump(mode="json"),
                decode=lambda form: ReflectionOutcome.model_validate(form, strict=False),
            ),
            timing=parts.timing,
            has_lesson=lambda outcome: outcome.has_lesson,
        )

    async def open(self, client: TokenClient) -> None:
        """Let reflections be drawn from the engines behind `client`; those of a resumed run are written again."""
        parts = self._parts
        policy = EnginePolicy(client, parts.tokenizer, max_length=parts.settings.reflection.total_tokens)
        self._reflector = Reflector(
            PolicyCandidates(policy),
            parts.reflection_judge,
            parts.bank,
            settings=parts.settings.reflection,
            version=lambda: policy.versions(otherwise=0).last,
        )
        self._deferred.relaunch()

    async def references(self, meeting: Meeting) -> str:
        """Lessons of other questions at a new encounter, the question's own at a repeat (choices C11-C13).

        Looked for once: all attempts of a group have the same ones before them.
        """
        if not self._parts.settings.meta_policy:
            return ""
        asked = _asked(meeting)
        if asked not in self._lent:
            self._lent[asked] = asyncio.ensure_future(self._lend(meeting))
        # Shielded: an attempt that is given up must not take the others' lessons along.
        return await asyncio.shield(self._lent[asked])

    async def _lend(self, meeting: Meeting) -> str:
        parts = self._parts
        mode = Retrieval.CROSS if meeting.encounter is Encounter.NEW else Retrieval.WITHIN
        if mode is Retrieval.WITHIN:
            await self._deferred.wait(meeting.query.key, timeout=parts.settings.time_limits.lesson)
        found = await asyncio.to_thread(parts.bank.retrieve, meeting.query.question, mode)
        injection = parts.injector.inject("", found, mode)
        self._shown[Ticket(meeting.step, meeting.query.key)] = injection.shown
        return injection.block

    async def hand_in(self, handed: Handed) -> Marks:
        """Wait until the group is whole and judged; what this rollout is worth."""
        group = self._groups.setdefault(handed.group, _Group())
        group.handed[handed.place] = handed
        if len(group.handed) == self._parts.group_size:
            del self._groups[handed.group]
            marks = await self._mark([group.handed[place] for place in sorted(group.handed)])
            await self._gives_marks.wait()
            self._marked.append(handed.group)
            group.marks.set_result(marks)
        # Shielded: a rollout that is given up must not take its group's marks along.
        return (await asyncio.shield(group.marks))[handed.place]

    async def collect(self, step: int) -> TrainableReflections:
        """The reflections of earlier steps that have ended by now. Never waits."""
        late = self._deferred.collect(step=step)
        self._waiting = {ticket: self._waiting[ticket] for ticket in self._deferred.pending}
        return TrainableReflections(
            outcomes=tuple(done.result for done in late.done),
            failures=tuple(f"{failure.ticket}: {failure.reason}" for failure in late.failed),
            staleness=late.staleness,
            pending=len(self._deferred.pending),
            bank=len(self._parts.bank),
            fault=self._fault,
        )

    async def drain(self) -> None:
        """Wait for all reflections: for the synchronous mode, whose engines must be idle between steps."""
        await self._deferred.drain()

    async def keep(self, root: Path, *, step: int, stream: dict[str, Any], identity: dict[str, Any]) -> tuple[str, ...]:
        """Write the checkpoint of a step: the state of the desk and of the stream of questions, under one manifest.

        No group gets its marks from now to `go_on`: veRL saves its queue meanwhile, and what is judged in the one must
        be judged in the other. Returns the groups marked since the last checkpoint, which the queue has to hold before.
        """
        self._gives_marks.clear()
        marked, self._marked = tuple(self._marked), []
        await asyncio.to_thread(keep_desk, root, self._state(), step=step, stream=stream, identity=identity)
        return marked

    async def go_on(self) -> None:
        """Give marks again: the checkpoint is whole."""
        self._gives_marks.set()

    async def begin_record(self, run: Path, step: int) -> None:
        """Keep a record in the run's folder from now on, going on after `step`. Call it before `resume`.

        Raises:
            UsageError: the folder cannot be written.
        """
        self._record = DeskRecord(run, self._parts.bank)
        await asyncio.to_thread(self._record.begin, step, self._parts.tokenizer)

    async def record(self, step: int, told: Sequence[RolloutCredit]) -> None:
        """Write down the groups that a step has taken; nothing where no record is kept.

        Raises:
            UsageError: the disk refuses.
        """
        if self._record is not None:
            await asyncio.to_thread(self._record.write, step, told)

    async def resume(self, root: Path, *, step: int, identity: dict[str, Any]) -> dict[str, Any]:
        """Take over the checkpoint of a step; returns the state of the stream. Call `open` afterwards.

        Raises:
            CheckpointError: there is none of that step, it is damaged, or it belongs to a run with other settings.
        """
        kept = resume_desk(root, self._parts.bank, step=step, identity=identity)
        self._parts.judge.load_state_dict(kept.judge)
        self._deferred.load_state_dict(kept.deferred)
        self._waiting = dict(kept.waiting)
        self._launched = kept.launched
        if self._record is not None:
            self._record.load_state_dict(kept.noted)
        return kept.stream

    def _state(self) -> DeskState:
        return DeskState(
            judge=self._parts.judge.state_dict(),
            deferred=self._deferred.state_dict(),
            waiting={ticket: self._waiting[ticket] for ticket in self._deferred.pending},
            bank=self._parts.bank,
            noted=self._record.state_dict() if self._record is not None else {},
        )

    async def _mark(self, handed: Sequence[Handed]) -> list[Marks]:
        """Judge a whole group. A fault of ours or a reached ceiling marks nothing, and is told at the next `collect`."""
        meeting = handed[0].meeting
        self._lent.pop(_asked(meeting), None)
        group = Group.of(meeting.query, (one.rollout.trajectory for one in handed))
        try:
            judged = await self._parts.judge.judge_group(group, step=meeting.step)
        except RubricEMError as fault:
            self._fault = self._fault or str(fault)
            return [NO_MARKS._replace(failure=str(fault))] * len(handed)
        marks = self._marks(handed, group, judged)
        # A group that was lost whole has nothing to teach; a resumed run plays it again.
        is_judged = any(mark.is_valid for mark in marks)
        if self._parts.settings.meta_policy and meeting.encounter is Encounter.NEW and is_judged:
            self._launch(Ticket(meeting.step, group.key), judged_attempts(group, judged))
        self._note(handed, marks, judged)
        return marks

    def _marks(self, handed: Sequence[Handed], group: Group, judged: GroupJudgement) -> list[Marks]:
        scored = group_scores(judged.judgements)
        truth = self._parts.almanac.get(group.key)
        marks = []
        for place, (one, outcome) in enumerate(zip(handed, judged.rollouts, strict=True)):
            plan, research, review, answer = scored.scores[place].tolist()
            is_valid = bool(scored.valid[place]) and one.rollout.is_valid
            given = [outcome.judgement.score(stage) for stage in STAGES]
            marks.append(
                Marks(
                    (plan, research, review, answer),
                    judged=(given[0], given[1], given[2], given[3]),
                    is_valid=is_valid,
                    failure="" if is_valid else one.rollout.failure or outcome.failure or "the judge gave no score",
                    true=four_numbers(true_quality(truth, group.readings[place])) if truth is not None else None,
                )
            )
        return marks

    def _note(self, handed: Sequence[Handed], marks: Sequence[Marks], judged: GroupJudgement) -> None:
        """Keep what the record will say of a group, until a step takes it."""
        meeting = handed[0].meeting
        shown = self._shown.pop(Ticket(meeting.step, judged.query_key), ())
        if self._record is None:
            return
        group = group_entry(
            judged,
            self._parts.judge.buffer.rubrics(judged.query_key),
            place=0,
            encounter=meeting.encounter.value,
            question=meeting.query.question,
            shown=shown,
        )
        rollouts = [
            rollout_entry(group, one.rollout, outcome, attempt=one.place, true=mark.true)
            for one, outcome, mark in zip(handed, judged.rollouts, marks, strict=True)
        ]
        self._record.note(handed[0].group, group, rollouts)

    def _launch(self, ticket: Ticket, attempts: Sequence[JudgedAttempt]) -> None:
        """A group that a resumed run plays again may have its reflection in hand already."""
        if ticket in self._launched:
            return
        self._launched.add(ticket)
        self._waiting[ticket] = attempts
        self._deferred.launch(ticket)

    async def _reflect(self, ticket: Ticket) -> ReflectionOutcome:
        if self._reflector is None:
            raise OrderError("the desk has no engine to reflect with; call open() first.")
        return await self._reflector.reflect(self._waiting[ticket], step=ticket.step)


def _asked(meeting: Meeting) -> tuple[Ticket, Encounter]:
    return Ticket(meeting.step, meeting.query.key), meeting.encounter
