"""Runs what is missing of one evaluation: every example is answered, and every answer judged, as soon as possible."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Literal

from rubricem_agent.evals.answers import Answerer
from rubricem_agent.evals.benchmark import Loaded
from rubricem_agent.evals.case_judge import CaseJudge
from rubricem_agent.evals.cases import case_of
from rubricem_agent.evals.costs import dollars_of
from rubricem_env.domain.errors import BoundaryError, ModelError, boundary
from rubricem_env.llm.prices import PRICES, Price
from rubricem_env.llm.usage import SpendLimitReached
from rubricem_records.evaluations.logs import AnswerRecord, CaseKey
from rubricem_records.files.journal import Journal

RunPhase = Literal["all", "answers", "verdicts"]
"""The part of a run that is done."""


Listener = Callable[[RunPhase, str], None]
"""Called after each answer and each verdict, with the failure or an empty text: for progress bars."""


EXAMPLE_SECONDS = 3600.0


@dataclass(eq=False)
class Runner:
    """Runs what is missing of one run and logs it. It computes no score: scores are computed from the logs.

    `concurrency` is the number of attempts at once. An attempt that takes longer than EXAMPLE_SECONDS is recorded as a
    failure. What this start did is in `answered`, `judged` and `failures` (one sentence for each example that failed),
    what the logs had before it in `answered_before` and `judged_before`, and in `stopped` why it stopped early, empty
    where it did not.
    """

    loaded: Loaded
    answers: Journal[AnswerRecord]
    _: KW_ONLY
    answerer: Answerer
    judges: Sequence[CaseJudge]
    clock: Callable[[], float]
    concurrency: InitVar[int] = 16
    check_budget: Callable[[], None] = lambda: None
    guidance: str = ""
    """A line on the answer's form that is put after every question."""
    listener: Listener = lambda phase, failure: None
    prices: Mapping[str, Price] = field(default_factory=lambda: PRICES)
    answered: int = field(default=0, init=False)
    judged: int = field(default=0, init=False)
    answered_before: int = field(default=0, init=False)
    judged_before: int = field(default=0, init=False)
    failures: list[str] = field(default_factory=list, init=False)
    stopped: str = field(default="", init=False)

    def __post_init__(self, concurrency: int) -> None:
        self._slots = asyncio.Semaphore(concurrency)

    async def run(self, keys: Sequence[CaseKey], stage: RunPhase = "all") -> None:
        """Do what is missing for these cases; a failure affects its case alone."""
        await asyncio.gather(*(self._case(key, stage) for key in keys))
        self.failures.sort()

    async def _case(self, key: CaseKey, stage: RunPhase) -> None:
        try:
            record = known = self.answers.find(key)
            if known is not None and known.is_final:
                self.answered_before += 1
                self.listener("answers", "")
            elif stage != "verdicts":
                record = await self._answer(key)
            if stage != "answers" and record is not None and record.is_final and not self.stopped:
                await self._judge(record, is_new=record is not known)
        except SpendLimitReached as limit:
            # Calls in progress are already paid for and end normally; nothing new begins.
            self.stopped = str(limit)

    async def _answer(self, key: CaseKey) -> AnswerRecord | None:
        async with self._slots:
            if self.stopped:
                return None
            self.check_budget()
            begun = self.clock()
            answered = await self._attempt(key)
        record = answered.model_copy(
            update={
                "benchmark": self.loaded.name,
                "mode": self.loaded.rules.mode,
                "dollars": dollars_of(answered.usage, answered.model, prices=self.prices),
                "seconds": self.clock() - begun,
            }
        )
        self.answers.append(record)
        self.answered += not record.failure
        self._note("answers", key, failure=record.failure)
        return record

    async def _attempt(self, key: CaseKey) -> AnswerRecord:
        try:
            with boundary(ModelError, f"answer example {key.id}"):
                async with asyncio.timeout(EXAMPLE_SECONDS):
                    return await self.answerer(
                        self.loaded.asked(key.id),
                        answer_format=self.loaded.format_of(key.id),
                        guidance=self.guidance,
                        epoch=key.epoch,
                    )
        except BoundaryError as failure:
            return AnswerRecord(id=key.id, epoch=key.epoch, failure=str(failure))

    async def _judge(self, record: AnswerRecord, *, is_new: bool) -> None:
        case = case_of(self.loaded, record)
        failure = ""
        for judge in self.judges:
            try:
                with boundary(ModelError, f"grade example {record.id}"):
                    await judge.grade(record.key, self.loaded.grader.grade(case))
            except BoundaryError as outage:
                failure = str(outage)
        if not failure:
            is_new = is_new or any(record.key in judge.asked for judge in self.judges)
            self.judged += is_new
            self.judged_before += not is_new
        self._note("verdicts", record.key, failure=failure)

    def _note(self, stage: RunPhase, key: CaseKey, *, failure: str) -> None:
        if failure:
            self.failures.append(f"example {key.id}, epoch {key.epoch}: {failure}")
        self.listener(stage, failure)
