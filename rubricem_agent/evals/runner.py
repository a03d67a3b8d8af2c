"""A run: every example answered, every answer judged, each as soon as it can be, within the limits of each.

One judge at work: questions asked within a limit, replies logged before they are used, outages kept apart from verdicts.

A dry run: every question to the judge is made up and counted, none is asked.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, NamedTuple, Protocol

from pydantic import Field

from rubricem_agent.evals.answers import Answerer, AnswerOutcome, Task
from rubricem_agent.evals.base import Example, Rules
from rubricem_agent.evals.extraction import Extracted, extract, judged_text
from rubricem_agent.evals.grading import Case, Grade, Grading, GradingQuestion, JudgeReplies, Loaded, replay
from rubricem_agent.evals.records import AnswerRecord, CaseKey, Journal, VerdictKey, VerdictRecord, dollars_of
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import BoundaryError, JudgeError, ModelError, boundary
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.llm.base import CHARS_PER_TOKEN, ChatModel, ChatReply, ChatRequest
from rubricem_env.llm.limits import RetryPolicy, Timing, call_with_retry
from rubricem_env.llm.usage import SpendLimitReached, Usage, price_of

PURPOSE = "judge"
PAGES = "pages"
"""Stands in the log for the judge, where a page was read."""
OUTAGES_IN_A_ROW = 20
"""After so many the judge is taken to be down, and the rest is left for a resumed run."""


class Pages(Protocol):
    """Reads web pages; an empty text where a page cannot be read."""

    async def read(self, url: str) -> str: ...


class Terms(NamedTuple):
    """Under which a judge is asked, shared by all judges of a run."""

    retry: RetryPolicy
    """For requests that fail on the way; a reply that cannot be read has its own tries."""
    timing: Timing
    slots: asyncio.Semaphore
    check_budget: Callable[[], None]
    """Called before each question; raises SpendLimitReached."""


class JudgeDesk:
    """Grades cases with one judge. Safe for many cases at once on one event loop."""

    def __init__(
        self,
        name: str,
        model: ChatModel | None,
        *,
        benchmark: str,
        rules: Rules,
        journal: Journal[VerdictRecord],
        terms: Terms,
        pages: Pages | None = None,
    ) -> None:
        self.name = name
        self._benchmark = benchmark
        self._model = model
        self._rules = rules
        self._journal = journal
        self._terms = terms
        self._pages = pages
        self._outages = 0

    async def grade(self, key: CaseKey, grading: Grading) -> Grade:
        """Ask round by round until the grade is there. What the log already holds is not asked again.

        Raises:
            JudgeError: a question got no reply; the others of its round are in the log.
            SpendLimitReached: the budget is used up.
        """
        try:
            questions = next(grading)
            while True:
                questions = grading.send(await self._round(key, questions))
        except StopIteration as finished:
            grade: Grade = finished.value
            return grade

    async def _round(self, key: CaseKey, questions: tuple[GradingQuestion, ...]) -> tuple[JudgeReplies, ...]:
        # All of a round come to their end, so that what was paid for is in the log before a failure is passed on.
        results = await asyncio.gather(
            *(self._replies(key, question) for question in questions), return_exceptions=True
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            raise next((one for one in failures if isinstance(one, SpendLimitReached)), failures[0])
        return tuple(result for result in results if not isinstance(result, BaseException))

    async def _replies(self, key: CaseKey, question: GradingQuestion) -> JudgeReplies:
        known = self._journal.find(verdict_key(key, self.judge_of(question), question=question))
        if known is not None and known.is_final:
            return known.replies
        async with self._terms.slots:
            self._terms.check_budget()
            record = await self._ask(key, question)
        self._journal.append(record)
        if record.failure:
            self._outages += 1
            raise JudgeError(record.failure)
        self._outages = 0
        return record.replies

    def judge_of(self, question: GradingQuestion) -> str:
        return PAGES if question.is_page else self.name

    async def _ask(self, key: CaseKey, question: GradingQuestion) -> VerdictRecord:
        begun = self._terms.timing.clock()
        replies: list[ChatReply] = []
        failure = ""
        try:
            with boundary(JudgeError, f"judge {question.key} of example {key.id}"):
                while len(replies) < question.tries and not (replies and question.accepts(replies[-1].text)):
                    replies.append(await self._one_reply(question))
        except (JudgeError, ModelError) as outage:
            failure = str(outage)
        usage = sum((reply.usage for reply in replies), Usage())
        model = replies[-1].model if replies else ""
        return VerdictRecord(
            benchmark=self._benchmark,
            mode=self._rules.mode.value,
            id=key.id,
            epoch=key.epoch,
            judge=self.judge_of(question),
            question=question.key,
            asked=hash_of(question),
            replies=tuple(reply.text for reply in replies),
            model=model,
            failure=failure,
            usage=usage,
            dollars=dollars_of(model, usage),
            seconds=max(0.0, self._terms.timing.clock() - begun),
        )

    async def _one_reply(self, question: GradingQuestion) -> ChatReply:
        if question.is_page:
            page = "" if self._pages is None else await self._pages.read(question.prompt)
            return ChatReply(text=page, model=PAGES, usage=Usage())
        if self._outages >= OUTAGES_IN_A_ROW:
            raise JudgeError(f"the judge {self.name} failed {self._outages} times in a row; it is not asked further")
        if self._model is None:
            raise JudgeError("there is no judge in this run; name one with --judge")
        model, request = self._model, self._request(question)
        return await call_with_retry(
            lambda: model.complete(request),
            doing=f"ask {self.name}",
            error=ModelError,
            policy=self._terms.retry,
            timing=self._terms.timing,
        )

    def _request(self, question: GradingQuestion) -> ChatRequest:
        return ChatRequest(
            question.prompt,
            system=question.system,
            schema=question.schema,
            purpose=PURPOSE,
            temperature=self._rules.temperature,
            max_output_tokens=self._rules.max_output_tokens,
        )


def hash_of(question: GradingQuestion) -> str:
    """The start of the SHA-256 of what is asked."""
    return hashlib.sha256(f"{question.system}\0{question.prompt}".encode()).hexdigest()[:16]


def verdict_key(key: CaseKey, judge: str, *, question: GradingQuestion) -> VerdictKey:
    """How the log knows a question."""
    return VerdictKey(key.id, key.epoch, judge, question.key, hash_of(question))


ANSWER_CHARACTERS = {AnswerFormat.EXACT: 40, AnswerFormat.SHORT: 1_800, AnswerFormat.LONG: 9_000}
"""What answers of each form usually have; the judge reads them."""
REPLY_TOKENS = 300
"""What a judge usually writes for one verdict; a RACE comparison or a cleaned article is far longer."""
LONG_REPLY_TOKENS = 4_000
_LONG = frozenset({"clean", "race"})


class CallEstimate(NamedTuple):
    """Calls and money of one stage. The dollars are None where the model has no price."""

    what: str
    model: str
    usage: Usage
    dollars: float | None


def rehearse(
    loaded: Loaded, ids: Sequence[str], *, epochs: int, policy: str | None, judges: Sequence[str]
) -> list[CallEstimate]:
    """The calls of a run: exact for a judge that is always readable, but that FACT is counted without its pages.

    No policy is one that costs nothing: a script, or answers from a file.
    """
    asked = sum((_asked_about(loaded, example_id) for example_id in ids), Usage())
    estimates = [_policy(len(ids) * epochs, policy)] if policy else []
    estimates += [_priced("verdicts", judge, usage=_times(asked, epochs)) for judge in judges]
    return estimates


def _policy(episodes: int, policy: str) -> CallEstimate:
    """At most: every episode uses all its calls and all its tokens."""
    limits = EpisodeLimits()
    turns = limits.max_calls + 1
    # Each turn reads the conversation so far again, half of the whole on average.
    read = turns * limits.max_tokens // 2
    whole = Usage(calls=turns, input_tokens=read, output_tokens=limits.max_tokens)
    return _priced("answers, at most", policy, usage=_times(whole, episodes))


def _asked_about(loaded: Loaded, example_id: str) -> Usage:
    length = ANSWER_CHARACTERS[loaded.format_of(example_id)]
    answer = Extracted("x" * length, "given answer")
    counted: list[GradingQuestion] = []

    def note(question: GradingQuestion) -> tuple[str, ...]:
        counted.append(question)
        return ("x" * length,) * question.tries

    replay(loaded.grader.grade(Case(loaded.example(example_id), loaded.gold[example_id], answer)), note)
    asked = [question for question in counted if not question.is_page]
    return Usage(
        calls=len(asked),
        input_tokens=sum((len(one.prompt) + len(one.system)) // CHARS_PER_TOKEN for one in asked),
        output_tokens=sum(LONG_REPLY_TOKENS if one.key in _LONG else REPLY_TOKENS for one in asked),
    )


def _times(usage: Usage, times: int) -> Usage:
    return Usage(
        calls=usage.calls * times,
        input_tokens=usage.input_tokens * times,
        output_tokens=usage.output_tokens * times,
    )


def _priced(what: str, model: str, *, usage: Usage) -> CallEstimate:
    is_free = not usage.calls
    return CallEstimate(what, model, usage, dollars_of(model, usage) if is_free or price_of(model) else None)


Size = Annotated[int, Field(ge=1)]


class RunPhase(StrEnum):
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
    """Raises SpendLimitReached before anything is begun that the budget does not cover."""


class RunOutcome(NamedTuple):
    """How a run came out."""

    answered: int
    judged: int
    failures: tuple[str, ...]
    """One sentence for each example that failed on the way, sorted."""
    stopped: str = ""
    """Why the run stopped early; empty where it went through."""


class ProgressStep(NamedTuple):
    """Something was done: for progress bars."""

    stage: RunPhase
    key: CaseKey
    failure: str = ""


Listener = Callable[[ProgressStep], None]


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
        self._counts = {RunPhase.ANSWERS: 0, RunPhase.VERDICTS: 0}
        self._stopped = ""

    async def run(self, keys: Sequence[CaseKey], stage: RunPhase = RunPhase.ALL) -> RunOutcome:
        """Do what is missing for these cases; a failure is that of its case alone."""
        slots = asyncio.Semaphore(self._allowance.limits.policy)
        await asyncio.gather(*(self._case(key, stage, slots=slots) for key in keys))
        return RunOutcome(
            self._counts[RunPhase.ANSWERS],
            self._counts[RunPhase.VERDICTS],
            tuple(sorted(self._failures)),
            self._stopped,
        )

    async def _case(self, key: CaseKey, stage: RunPhase, *, slots: asyncio.Semaphore) -> None:
        try:
            record = self._answers.find(key)
            if stage is not RunPhase.VERDICTS and (record is None or record.failure):
                record = await self._answer(key, slots)
            if stage is not RunPhase.ANSWERS and record is not None and record.is_final and not self._stopped:
                await self._judge(record)
        except SpendLimitReached as ceiling:
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
        self._tell(RunPhase.ANSWERS, key, failure=record.failure)
        return record

    async def _attempt(self, example: Example, epoch: int) -> AnswerOutcome:
        task = Task(example, self._loaded.format_of(example.id), self._loaded.benchmark.guidance, epoch)
        try:
            with boundary(ModelError, f"answer example {example.id}"):
                async with asyncio.timeout(self._allowance.limits.example_seconds):
                    return await self._answerer.answer(task)
        except BoundaryError as failure:
            return AnswerOutcome(failure=str(failure))

    async def _judge(self, record: AnswerRecord) -> None:
        case = case_of(self._loaded, record)
        failure = ""
        for desk in self._desks:
            try:
                with boundary(ModelError, f"grade example {record.id}"):
                    await desk.grade(record.key, self._loaded.grader.grade(case))
            except BoundaryError as outage:
                failure = str(outage)
        self._tell(RunPhase.VERDICTS, record.key, failure=failure)

    def _tell(self, stage: RunPhase, key: CaseKey, *, failure: str) -> None:
        self._counts[stage] += not failure
        if failure:
            self._failures.append(f"example {key.id}, epoch {key.epoch}: {failure}")
        self._listener(ProgressStep(stage, key, failure))


def case_of(loaded: Loaded, record: AnswerRecord) -> Case:
    """The answer as it is graded. The same record gives the same case, now and when scores are made again."""
    return Case(loaded.example(record.id), loaded.gold[record.id], extracted(loaded, record), record.trajectory)


def extracted(loaded: Loaded, record: AnswerRecord) -> Extracted:
    """The text that is judged, by the rules of the mode."""
    if record.trajectory is not None:
        return extract(record.trajectory, loaded.rules)
    return judged_text(Extracted(record.given or "", "given answer"), loaded.rules)


def case_keys(ids: Sequence[str], epochs: int) -> tuple[CaseKey, ...]:
    """Every example of the subset in every epoch, epoch by epoch."""
    return tuple(CaseKey(example_id, epoch) for epoch in range(epochs) for example_id in ids)
