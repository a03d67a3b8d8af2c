"""The judge service of a run: judges and credits groups, serves lessons from the bank, and reflects in the background.

The rollouts of a group are submitted separately. When the last one is there, the group is judged, and each submission
returns the advantages of its rollout's tokens. Other groups are sampled meanwhile.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.deferred import Deferred, Ticket
from rubricem_agent.learn.step import (
    AttemptLessons,
    CreditedGroup,
    begin_record,
    collect_reflections,
    credit_groups,
    credit_rollouts,
    describe_groups,
    measure_lessons,
    record_groups,
    refuse_lost_proposals,
    retrieve_lessons,
)
from rubricem_agent.memory.inject import Block
from rubricem_agent.memory.snapshot import load_snapshot
from rubricem_agent.policy.local import load_tokenizer
from rubricem_agent.prompting import read_agent_prompts
from rubricem_agent.reflection.reflector import JudgedAttempt, ReflectionOutcome, Reflector, judged_attempts
from rubricem_agent.wiring.memory import build_bank, build_injector
from rubricem_agent.wiring.models import build_judge
from rubricem_agent.wiring.tools import open_cache
from rubricem_env.concurrency import HEAVY_WORK, derive_seed, run_heavy
from rubricem_env.domain.errors import JudgeError, RubricEMError, UsageError
from rubricem_env.heap import settle_heap
from rubricem_env.judge.base import Judge
from rubricem_env.judge.group import Group
from rubricem_env.judge.judgements import GroupJudgement, RolloutJudgement, refused_rubrics
from rubricem_env.judge.outage import refuse_outage
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.reflections import ReflectionJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.scoring import score_trajectory
from rubricem_env.judge.trust.audit import HeldOutAudit
from rubricem_env.llm.limits.shared_limits import SharedLimits
from rubricem_env.world.judge import AlmanacJudge
from rubricem_env.world.questions import Question
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.run_record import RECORD_FOLDER
from rubricem_records.rollouts.run_recorder import RunRecorder

from ..settings import prompt_hashes, with_run_seed
from .background_audit import BackgroundAudit
from .checkpoint import check_identity, pack_attempts, save_service, unpack_attempts
from .patience import Patience
from .questions import load_training_questions
from .rollout import EnginePolicy
from .rows import ScheduledQuery
from .settings import VerlSettings

TokenAdvantages = npt.NDArray[np.floating] | None
"""One entry for each token of a rollout; None for a rollout that teaches nothing."""
_WAY_OUT = "Fix the cause and start again: the run resumes from its last checkpoint."


class IncompleteGroup(NamedTuple):
    """A group whose last rollouts are still being sampled."""

    rollouts: dict[int, Rollout]
    """The rollouts submitted so far, by their index."""
    advantages: asyncio.Future[list[TokenAdvantages]]
    """The advantages of all rollouts, in the order of their indices; set when the group is judged."""


class JudgeService(SharedLimits):
    """The judge service. All methods run on one event loop.

    It also holds the rate limits of the search engines, which all rollout workers share.
    """

    def __init__(self, settings: VerlSettings, *, model: Path, group_size: int) -> None:
        """Build judge, bank and tokenizer.

        Raises:
            ConfigError: a setting names something unknown, or the model's folder has no tokenizer.
            MissingExtraError: a package that a setting needs is not installed.
        """
        super().__init__()
        self.settings = settings = with_run_seed(settings, settings.seed)
        self.group_size = group_size
        self.tokenizer = load_tokenizer(model)
        self._truth = load_training_questions(settings)[1]
        judge, self._reflection_judge = _judges(settings, self._truth)
        self._stages = stages = settings.stage_set
        self.judge = StepJudge(judge, RubricBuffer(), settings=settings.judge.settings, stage_set=stages)
        self.bank = build_bank(settings.bank, stages.scaffold)
        self._prompts = read_agent_prompts(settings.prompts, stages)
        self._prompt_hashes = prompt_hashes(settings, settings.judge)
        self._injector = build_injector(
            settings.bank, self.tokenizer.count, prompts=self._prompts, scaffold=stages.scaffold
        )
        self._heavy = ThreadPoolExecutor(max_workers=1, thread_name_prefix="judge-service")
        """Prompts, gates and credit are made here, in the order in which they were asked for, beside the event loop."""
        self._groups: dict[str, IncompleteGroup] = {}
        """Groups that miss rollouts, by name."""
        self._attempts: dict[Ticket, Sequence[JudgedAttempt]] = {}
        """The judged groups of the reflections that are pending."""
        self._launched: set[Ticket] = set()
        self._blocks: dict[Ticket, asyncio.Future[list[Block]]] = {}
        """Lessons before each attempt at the questions that are being sampled."""
        self._judged: dict[str, CreditedGroup] = {}
        """Credited groups that no step has trained on yet, by name."""
        self._step = 0
        """The latest step that trained on groups."""
        self._taken = 0
        """How many groups the latest step has taken."""
        self._recorder: RunRecorder | None = None
        self._recording: asyncio.Future[None] | None = None
        self._reflector: Reflector | None = None
        self._fault = ""
        self.patience = Patience(settings.outage.patience, settings.outage.probe)
        self.search_patience = Patience(settings.outage.patience, settings.outage.probe)
        """Patience with the search engines, which the rollout workers call."""
        self._cache = open_cache(settings.tools)
        """The results of the workers' tools."""
        self._audit = _held_out(settings, self._truth)
        self._refused: Counter[str] = Counter()
        """Rubrics refused since the last `collect`, by reason."""
        self._scored: list[str] = []
        """Groups that got their credit since the last checkpoint."""
        self._may_score = asyncio.Event()
        self._may_score.set()
        self.reflections = Deferred(self._reflect, ReflectionOutcome)

    async def open(self, client: Any) -> None:
        """Connect to the engines behind veRL's `client` for reflections; those pending in a checkpoint start again."""
        policy = EnginePolicy(client, self.tokenizer, max_length=self.settings.reflection.total_tokens)
        HEAVY_WORK.set(self._heavy)
        self._reflector = Reflector(
            policy,
            self._reflection_judge,
            self.bank,
            settings=self.settings.reflection,
            version=lambda: policy.versions(default=0)[1],
            prompts=self._prompts,
        )
        self.reflections.relaunch()
        settle_heap()

    async def cached(self, key: str) -> str | None:
        """The cached result of a tool call; None where there is none."""
        return await self._cache.get(key)

    async def cache(self, key: str, text: str) -> None:
        """Cache the result of a tool call for all workers."""
        await self._cache.put(key, text)

    async def references(self, scheduled: ScheduledQuery, index: int) -> str:
        """The block of lessons to show before an attempt at the question; "" without any.

        A new question gets lessons of similar questions, a repeated question its own. They are retrieved once for all
        attempts of a group.
        """
        if not self.settings.is_guided(index, step=scheduled.step):
            return ""
        ticket = Ticket(scheduled.step, scheduled.query.key)
        if ticket not in self._blocks:
            self._blocks[ticket] = asyncio.ensure_future(self._retrieve(scheduled))
        # Shielded: cancelling one attempt must not cancel the others' lessons.
        return (await asyncio.shield(self._blocks[ticket]))[index][0]

    async def _retrieve(self, scheduled: ScheduledQuery) -> list[Block]:
        if scheduled.encounter == "repeat":
            await self.reflections.wait(scheduled.query.key, timeout=self.settings.time_limits.lesson)
        # In a thread: an embedder with weights must not hold up the event loop.
        lessons = await asyncio.to_thread(
            retrieve_lessons,
            self.bank,
            scheduled.query.question,
            encounter=scheduled.encounter,
            on_miss=self.settings.on_miss,
            guided=self.settings.guided_attempts(self.group_size, step=scheduled.step),
            seed=derive_seed(self.settings.seed, scheduled.step, scheduled.query.key, "lessons"),
        )
        return await asyncio.to_thread(lessons.blocks, self._injector, self.group_size)

    async def submit(self, scheduled: ScheduledQuery, rollout: Rollout, *, group: str, index: int) -> TokenAdvantages:
        """Wait until the group is complete and judged; returns the advantages of this rollout's tokens.

        `group` names the group, one for each encounter of a question; `index` counts its rollouts from 0.
        """
        HEAVY_WORK.set(self._heavy)
        if group not in self._groups:
            self._groups[group] = IncompleteGroup({}, asyncio.get_running_loop().create_future())
        submitted = self._groups[group]
        submitted.rollouts[index] = rollout
        if len(submitted.rollouts) == self.group_size:
            del self._groups[group]
            rollouts = [submitted.rollouts[number] for number in sorted(submitted.rollouts)]
            seen = self._take_lessons(Ticket(scheduled.step, scheduled.query.key))
            judged, advantages = await self._judge_group(scheduled, rollouts, seen=seen, name=group)
            await self._score_group(group, scheduled, judged, seen=seen)
            submitted.advantages.set_result(advantages)
        # Shielded: cancelling one rollout must not cancel its group's credit.
        return (await asyncio.shield(submitted.advantages))[index]

    async def _score_group(
        self, name: str, scheduled: ScheduledQuery, judged: GroupJudgement, *, seen: AttemptLessons
    ) -> None:
        """Count a group as scored, and measure its lessons: a checkpoint is taken before both, or after both."""
        while True:
            await self._may_score.wait()
            async with self._writing():
                if self._may_score.is_set():
                    self._scored.append(name)
                    question = scheduled.query.question
                    await asyncio.to_thread(measure_lessons, self.bank, question, judged, seen, step=scheduled.step)
                    return

    def _writing(self) -> AbstractAsyncContextManager[object]:
        """Nobody else writes to the bank, and no checkpoint is taken."""
        return self._reflector.writing if self._reflector is not None else nullcontext()

    async def collect(self, step: int) -> tuple[list[ReflectionOutcome], dict[str, Any]]:
        """The finished reflections of earlier steps, and their metrics. Never waits.

        Raises:
            JudgeError: judging cannot continue, such as with a budget that is used up.
        """
        HEAVY_WORK.set(self._heavy)
        if self._fault:
            raise JudgeError(self._fault)
        collected = collect_reflections(self.reflections, step=step, refused_rubrics=self._refused)
        self._attempts = {ticket: self._attempts[ticket] for ticket in self.reflections.pending}
        self._refused = Counter()
        return collected.outcomes, {
            **collected.line,
            **(self._audit.collect() if self._audit is not None else {}),
            "bank": len(self.bank),
        }

    async def report(self, step: int, groups: Sequence[str]) -> dict[str, Any]:
        """The step's log entries about the groups that it trains on.

        The groups are written to the record in the background; `finish_record` waits for it.

        Raises:
            JudgeError: the judge or the world lost too many of the step's rollouts, or the judge of its proposals.
        """
        taken = self._take(step, groups)
        lost = [failure for group in taken for failure in group.failures if failure]
        attempts, limits = sum(len(group.rollouts) for group in taken), self.settings.judge.settings
        refuse_outage(lost, attempts, limit=limits.failure_limit, way_out=_WAY_OUT)
        refuse_lost_proposals(taken, limit=limits.proposal_limit, way_out=_WAY_OUT)
        await self.finish_record()
        self._recording = asyncio.ensure_future(
            asyncio.to_thread(record_groups, self._recorder, taken, bank=self.bank, step=step)
        )
        described = await asyncio.to_thread(describe_groups, taken)
        return {**described, "paused_seconds": round((await self.pauses())[1], 1)}

    def _take(self, step: int, names: Iterable[str]) -> list[CreditedGroup]:
        """Remove and return the groups that an update trains on, in that order; a step may have several updates."""
        if step != self._step:
            self._step = step
            self._taken = 0
        taken = [self._judged.pop(name).taken(step, index) for index, name in enumerate(names, start=self._taken)]
        self._taken += len(taken)
        return taken

    async def pauses(self) -> tuple[bool, float]:
        """Whether the run is paused because judge or search is away, and the seconds of all pauses so far."""
        both = (self.patience, self.search_patience)
        return any(patience.is_paused for patience in both), sum(patience.seconds for patience in both)

    async def wait_for_search(self) -> bool:
        """Wait for the next probe of a search engine that is away; False where the patience is exhausted."""
        return await self.search_patience.wait()

    async def search_is_back(self) -> None:
        self.search_patience.end()

    async def finish_record(self) -> None:
        """Wait until the groups of the latest step are in the record; raises the error that prevented it."""
        recording, self._recording = self._recording, None
        if recording is not None:
            await recording

    async def drain(self) -> None:
        """Wait for all reflections. The synchronous mode needs this: its engines must be idle between steps."""
        await self.reflections.drain()

    async def save(
        self, root: Path, *, step: int, held: Collection[str], stream: dict[str, Any], identity: dict[str, Any]
    ) -> tuple[str, ...]:
        """Write the checkpoint of a step: the states of the service and of the question stream, under one manifest.

        `held` names the groups in veRL's queue. veRL has dropped all others, so the service forgets them. No group
        gets its credit until `resume_scoring`: veRL saves its queue in between, and both must agree on which groups are
        judged. Returns the groups credited since the last checkpoint; the queue must contain them before it is saved.
        """
        self._may_score.clear()
        known = {*held, *self._scored}
        self._judged = {name: group for name, group in self._judged.items() if name in known}
        # The bank is written last. No reflection may enter it after the pending reflections were listed.
        async with self._writing():
            scored, self._scored = tuple(self._scored), []
            states: dict[str, object] = {"judge": self.judge.state_dict(), "stream": stream, "identity": identity}
            if self._audit is not None:
                states["audit"] = self._audit.audit.state_dict()
            # What is large is dumped beside the event loop, on which groups are still judged and reflections end.
            deferred, judged = self.reflections.freeze(), dict(self._judged)
            waiting = [(ticket, self._attempts[ticket]) for ticket in self.reflections.pending]

            def write() -> None:
                states["deferred"] = deferred()
                states["waiting"] = [pack_attempts(*one) for one in waiting]
                states["noted"] = {name: group.model_dump(mode="json") for name, group in judged.items()}
                save_service(root, states, bank=self.bank, step=step, prompts=self._prompt_hashes)

            await asyncio.to_thread(write)
        return scored

    async def resume_scoring(self) -> None:
        """Give out credit again: the checkpoint is complete."""
        self._may_score.set()

    async def load(self, root: Path, *, step: int, identity: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Load the checkpoint of a step; returns the state of the question stream, and the groups to sample again.

        An outage of judge or search spoilt the groups to sample again; it must not stop the run a second time. Call
        `open` afterwards. The work is done in a thread: it takes seconds, and nobody else calls the service yet.
        """
        return await asyncio.to_thread(self._restore, root, step, identity)

    def _restore(self, root: Path, step: int, identity: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        checkpoint = check_identity(root, step=step, identity=identity)
        checkpoint.refuse_other_prompts(self._prompt_hashes)
        with checkpoint.restoring():
            load_snapshot(self.bank, checkpoint.path("bank"), step=checkpoint.step)
            deferred, stream = checkpoint.read_json("deferred"), checkpoint.read_json("stream")
            self.judge.load_state_dict(checkpoint.read_json("judge"))
            self.reflections.load_state_dict(deferred)
            # Reflections that are pending, or finished and not trained on yet.
            self._launched = {Ticket(*row[:2]) for kind in ("pending", "done", "failed") for row in deferred[kind]}
            self._attempts = dict(map(unpack_attempts, checkpoint.read_json("waiting")))
            if self._audit is not None and "audit" in checkpoint.parts:
                self._audit.audit.load_state_dict(checkpoint.read_json("audit"))
            judged = {
                name: CreditedGroup.model_validate(saved, strict=False)
                for name, saved in checkpoint.read_json("noted").items()
            }
        limit = self.settings.judge.settings.failure_limit
        spoilt = [
            name for name, group in judged.items() if sum(map(bool, group.failures)) > limit * len(group.failures)
        ]
        self._judged = {name: group for name, group in judged.items() if name not in spoilt}
        return stream, tuple(spoilt)

    async def begin_record(self, run: Path, step: int) -> None:
        """Begin to record groups in the run's folder, after `step`."""
        assert self.settings.record is not None, "the trainer asks for a record only where the settings keep one"
        recorder = RunRecorder(
            run / RECORD_FOLDER,
            sampled=self.settings.record,
            switch="rubricem.record=false",
            stages=self._stages.scaffold.names,
        )
        await asyncio.to_thread(begin_record, recorder, step, tokenizer=self.tokenizer, bank=self.bank)
        self._recorder = recorder

    def _take_lessons(self, ticket: Ticket) -> AttemptLessons:
        """The lessons that stood before each attempt of a complete group."""
        retrieval = self._blocks.pop(ticket, None)
        if retrieval is None or not retrieval.done() or retrieval.exception() is not None:
            return [()] * self.group_size
        return [items for _, items in retrieval.result()]

    async def _judge_group(
        self, scheduled: ScheduledQuery, rollouts: Sequence[Rollout], *, seen: AttemptLessons, name: str
    ) -> tuple[GroupJudgement, list[TokenAdvantages]]:
        """Judge and credit a complete group. A bug or a used-up budget is raised by the next `collect`."""
        ticket = Ticket(scheduled.step, scheduled.query.key)
        group = await run_heavy(Group.of, scheduled.query, [rollout.parsed for rollout in rollouts])
        try:
            judged = await self.patience.run(
                lambda: self.judge.judge_group(group, step=scheduled.step),
                is_lost=lambda judged: (
                    any(rollout.is_valid for rollout in rollouts)
                    and not any(outcome.is_valid for outcome in judged.rollouts)
                ),
            )
        except RubricEMError as fault:
            self._fault = self._fault or str(fault)
            rollouts = [rollout.model_copy(update={"failure": rollout.failure or str(fault)}) for rollout in rollouts]
            unscored = score_trajectory((), (), rubric_scores={}, stages=self._stages.scaffold.names)
            lost = RolloutJudgement(judgement=unscored)
            judged = GroupJudgement(
                query_key=group.key,
                step=scheduled.step,
                fingerprint=group.fingerprint,
                rubrics=(),
                rollouts=(lost,) * len(rollouts),
            )
        self._refused.update(refused_rubrics([judged]))
        if self._audit is not None:
            self._audit.add(group, judged)
        credited, advantages = await run_heavy(
            partial(self._credit_group, scheduled, rollouts, judged, group=group, seen=seen)
        )
        self._judged[name] = credited
        # A group whose rollouts all failed has no lesson; a resumed run samples it again and may reflect on it then.
        # A resumed run does not repeat a reflection that was launched before.
        is_due = self.settings.is_reflected_on(scheduled.encounter) and ticket not in self._launched
        if is_due and any(entry.is_valid for entry in self._judged[name].rollouts):
            self._launched.add(ticket)
            self._attempts[ticket] = judged_attempts(group, judged)
            self.reflections.launch(ticket)
        return judged, advantages

    def _credit_group(
        self,
        scheduled: ScheduledQuery,
        rollouts: Sequence[Rollout],
        judged: GroupJudgement,
        *,
        group: Group,
        seen: AttemptLessons,
    ) -> tuple[CreditedGroup, list[TokenAdvantages]]:
        credited = credit_rollouts([rollouts], [judged], settings=self.settings, stage_set=self._stages)
        (entry,) = credit_groups(
            [group],
            [rollouts],
            [judged],
            credited.credit,
            encounter=scheduled.encounter,
            buffer=self.judge.buffer,
            lessons={group.key: seen},
            truth=self._truth,
        )
        tokens = credited.token_advantages
        return entry, [tokens[row] if rollout.trained else None for row, rollout in enumerate(entry.rollouts)]

    async def _reflect(self, ticket: Ticket) -> ReflectionOutcome:
        if self._reflector is None:
            raise UsageError("the judge service has no engine to reflect with; call open() first.")
        return await self._reflector.reflect(self._attempts[ticket], step=ticket.step)


def _judges(settings: VerlSettings, truth: Mapping[str, Question]) -> tuple[Judge, ReflectionJudge]:
    if settings.almanac is None:
        built = build_judge(settings.judge, stage_set=settings.stage_set)
        return built.judge, built.reflection_judge
    judge = AlmanacJudge(truth.values(), knobs=settings.almanac.knobs, seed=settings.seed)
    return judge, judge


def _held_out(settings: VerlSettings, truth: Mapping[str, Question]) -> BackgroundAudit | None:
    held_out = settings.held_out_judge
    if held_out is None:
        return None
    seed = derive_seed(settings.seed, "held-out judge")
    if held_out.judge:
        judge: Judge = build_judge(held_out.judge, stage_set=settings.stage_set).judge
    else:
        judge = AlmanacJudge(truth.values(), seed=seed)
    return BackgroundAudit(HeldOutAudit(judge, settings=held_out, seed=seed), every=held_out.every)
