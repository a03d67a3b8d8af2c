"""A run: every example answered, every answer judged, each as soon as it can be, within the limits of each."""

import asyncio
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import Field

from rubricem_agent.evals.example import Example
from rubricem_agent.evals.extraction import Extracted, Found, extract, judged_text
from rubricem_agent.evals.grading.grade import Case
from rubricem_agent.evals.loading import Loaded
from rubricem_agent.evals.run.answering import Answered, Answerer, Task
from rubricem_agent.evals.run.journal import Journal
from rubricem_agent.evals.run.judging import JudgeDesk
from rubricem_agent.evals.run.money import dollars_of
from rubricem_agent.evals.run.records import AnswerRecord, CaseKey
from rubricem_agent.evals.suite import find_entry
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import BoundaryError, ModelError, boundary
from rubricem_env.llm.usage import CeilingReached

Size = Annotated[int, Field(ge=1)]


class Stage(StrEnum):
    """Which part of a run is done."""

    ALL = "all"
    ANSWERS = "answers"
    VERDICTS = "verdicts"


class Limits(Frozen):
    """How much runs at once."""

    policy: Size = 16
    judge: Size = 64
    search: Size = 16
    example_seconds: Annotated[float, Field(gt=0)] = 3600.0
    """After which an attempt is given up, and recorded as a failure."""


class Allowance(NamedTuple):
    """What a run may use: how much at once, and how much in all."""

    limits: Limits
    check_budget: Callable[[], None] = lambda: None
    """Raises CeilingReached before anything is begun that the budget does not cover."""


class Outcome(NamedTuple):
    """How a run came out."""

    answered: int
    judged: int
    failures: tuple[str, ...]
    """One sentence for each example that failed on the way, sorted."""
    stopped: str = ""
    """Why the run stopped early; empty where it went through."""


class Step(NamedTuple):
    """Something was done: for progress bars."""

    stage: Stage
    key: CaseKey
    failure: str = ""


Listener = Callable[[Step], None]


class Runner:
    """Drives one run. Makes no number: those come from the logs."""

    def __init__(
        self,
        loaded: Loaded,
        answers: Journal[AnswerRecord],
        *,
        answerer: Answerer,
        desks: Sequence[JudgeDesk],
        allowance: Allowance,
        clock: Callable[[], float],
        listener: Listener = lambda step: None,
    ) -> None:
        self._loaded = loaded
        self._answers = answers
        self._answerer = answerer
        self._desks = desks
        self._allowance = allowance
        self._clock = clock
        self._listener = listener
        self._failures: list[str] = []
        self._counts = {Stage.ANSWERS: 0, Stage.VERDICTS: 0}
        self._stopped = ""

    async def run(self, keys: Sequence[CaseKey], stage: Stage = Stage.ALL) -> Outcome:
        """Do what is missing for these cases; a failure is that of its case alone."""
        slots = asyncio.Semaphore(self._allowance.limits.policy)
        await asyncio.gather(*(self._case(key, stage, slots=slots) for key in keys))
        return Outcome(
            self._counts[Stage.ANSWERS], self._counts[Stage.VERDICTS], tuple(sorted(self._failures)), self._stopped
        )

    async def _case(self, key: CaseKey, stage: Stage, *, slots: asyncio.Semaphore) -> None:
        try:
            record = self._answers.find(key)
            if stage is not Stage.VERDICTS and (record is None or record.failure):
                record = await self._answer(key, slots)
            if stage is not Stage.ANSWERS and record is not None and record.is_final and not self._stopped:
                await self._judge(record)
        except CeilingReached as ceiling:
            # What is under way elsewhere is paid for, and comes to its end; nothing new begins.
            self._stopped = str(ceiling)

    async def _answer(self, key: CaseKey, slots: asyncio.Semaphore) -> AnswerRecord | None:
        async with slots:
            if self._stopped:
                return None
            self._allowance.check_budget()
            begun = self._clock()
            answered = await self._attempt(self._loaded.example(key.id), key.epoch)
        record = AnswerRecord(
            benchmark=self._loaded.name,
            mode=self._loaded.rules.mode.value,
            id=key.id,
            epoch=key.epoch,
            trajectory=answered.trajectory,
            given=answered.given,
            failure=answered.failure,
            usage=answered.usage,
            model=answered.model,
            dollars=dollars_of(answered.model, answered.usage),
            seconds=max(0.0, self._clock() - begun),
        )
        self._answers.append(record)
        self._tell(Stage.ANSWERS, key, failure=record.failure)
        return record

    async def _attempt(self, example: Example, epoch: int) -> Answered:
        entry = find_entry(self._loaded.name)
        task = Task(example, self._loaded.format_of(example.id), entry.guidance, epoch)
        try:
            with boundary(ModelError, f"answer example {example.id}"):
                async with asyncio.timeout(self._allowance.limits.example_seconds):
                    return await self._answerer.answer(task)
        except BoundaryError as failure:
            return Answered(failure=str(failure))

    async def _judge(self, record: AnswerRecord) -> None:
        case = case_of(self._loaded, record)
        failure = ""
        for desk in self._desks:
            try:
                with boundary(ModelError, f"grade example {record.id}"):
                    await desk.grade(record.key, self._loaded.grader.grade(case))
            except BoundaryError as outage:
                failure = str(outage)
        self._tell(Stage.VERDICTS, record.key, failure=failure)

    def _tell(self, stage: Stage, key: CaseKey, *, failure: str) -> None:
        self._counts[stage] += not failure
        if failure:
            self._failures.append(f"example {key.id}, epoch {key.epoch}: {failure}")
        self._listener(Step(stage, key, failure))


def case_of(loaded: Loaded, record: AnswerRecord) -> Case:
    """The answer as it is graded. The same record gives the same case, now and when scores are made again."""
    return Case(loaded.example(record.id), loaded.gold[record.id], extracted(loaded, record), record.trajectory)


def extracted(loaded: Loaded, record: AnswerRecord) -> Extracted:
    """The text that is judged, by the rules of the mode."""
    if record.trajectory is not None:
        return extract(record.trajectory, loaded.rules)
    return judged_text(Extracted(record.given or "", Found.GIVEN), loaded.rules)


def case_keys(ids: Sequence[str], epochs: int) -> tuple[CaseKey, ...]:
    """Every example of the subset in every epoch, epoch by epoch."""
    return tuple(CaseKey(example_id, epoch) for epoch in range(epochs) for example_id in ids)
