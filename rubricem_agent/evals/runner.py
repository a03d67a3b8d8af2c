"""A run: every example is answered and every answer judged as soon as possible, within the limits of each.

A judge's replies are logged before they are used, and outages are kept apart from verdicts. A dry run counts the
questions to the judge without asking them.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Literal

from rubricem_agent.evals.answers import Answerer
from rubricem_agent.evals.costs import dollars_of
from rubricem_agent.evals.extraction import Extracted, extract, judged_text
from rubricem_agent.evals.grading import Case, Grade, Grading, GradingQuestion, JudgeReplies, Loaded, replay
from rubricem_env.domain.errors import BoundaryError, JudgeError, ModelError, boundary
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.llm.base import CHARS_PER_TOKEN, ChatModel, ChatReply, ChatRequest, without_thoughts
from rubricem_env.llm.limits import RetryPolicy, Timing, call_with_retry
from rubricem_env.llm.usage import PRICES, Price, SpendLimitReached, Usage
from rubricem_records.evaluation_logs import PAGES, AnswerRecord, CaseKey, VerdictKey, VerdictRecord
from rubricem_records.evaluation_scores import ModelCost
from rubricem_records.journal import Journal

PURPOSE = "judge"
OUTAGES_IN_A_ROW = 20
"""After this many the judge counts as down, and the rest is left for a resumed run."""


ReadPage = Callable[[str], Awaitable[str]]
"""Reads the web page of a url; an empty text where it cannot be read."""


@dataclass(eq=False)
class CaseJudge:
    """Grades cases with one judge. Safe for many cases at once on one event loop.

    `retry` is for requests that fail; a reply that cannot be read has its own tries. `slots` are shared by all judges of
    a run. `check_budget` is called before each question and raises SpendLimitReached.
    """

    name: str
    model: ChatModel | None
    _: KW_ONLY
    loaded: Loaded
    journal: Journal[VerdictRecord]
    retry: RetryPolicy
    timing: Timing
    slots: asyncio.Semaphore
    check_budget: Callable[[], None] = lambda: None
    read_page: ReadPage | None = None
    prices: Mapping[str, Price] = field(default_factory=lambda: PRICES)
    _outages: int = field(default=0, init=False)

    async def grade(self, key: CaseKey, grading: Grading) -> Grade:
        """Ask round by round until the grade is complete. Questions with a logged reply are not asked again.

        Raises JudgeError where a question got no reply (the others of its round are in the log), and SpendLimitReached
        where the budget is used up.
        """
        try:
            questions = next(grading)
            while True:
                questions = grading.send(await self._round(key, questions))
        except StopIteration as finished:
            grade: Grade = finished.value
            return grade

    async def _round(self, key: CaseKey, questions: tuple[GradingQuestion, ...]) -> tuple[JudgeReplies, ...]:
        # The whole round ends before a failure is raised, so that every paid reply is in the log.
        results = await asyncio.gather(
            *(self._replies(key, question) for question in questions), return_exceptions=True
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            raise next((one for one in failures if isinstance(one, SpendLimitReached)), failures[0])
        return tuple(result for result in results if not isinstance(result, BaseException))

    async def _replies(self, key: CaseKey, question: GradingQuestion) -> JudgeReplies:
        known = self.journal.find(verdict_key(key, self._judge_of(question), question=question))
        if known is not None and known.is_final:
            return known.verdicts
        async with self.slots:
            self.check_budget()
            record = await self._ask(key, question)
        self.journal.append(record)
        if record.failure:
            self._outages += 1
            raise JudgeError(record.failure)
        self._outages = 0
        return record.verdicts

    def _judge_of(self, question: GradingQuestion) -> str:
        return PAGES if question.is_page else self.name

    async def _ask(self, key: CaseKey, question: GradingQuestion) -> VerdictRecord:
        begun = self.timing.clock()
        replies: list[ChatReply] = []
        spent: list[Usage] = []
        failure = ""
        try:
            with boundary(JudgeError, f"judge {question.key} of example {key.id}"):
                while len(replies) < question.tries:
                    replies.append(await self._one_reply(question, spent))
                    if question.accepts(without_thoughts(replies[-1].text)):
                        break
        except (JudgeError, ModelError) as outage:
            failure = str(outage)
        usage = sum(spent, Usage())
        model = replies[-1].model if replies else ""
        asked = () if question.is_page or self.model is None else (self.model.name,)
        return VerdictRecord(
            benchmark=self.loaded.name,
            mode=self.loaded.rules.mode,
            id=key.id,
            epoch=key.epoch,
            judge=self._judge_of(question),
            question=question.key,
            asked=hash_of(question),
            replies=tuple(reply.text for reply in replies),
            model=model,
            failure=failure,
            usage=usage,
            dollars=dollars_of(usage, *asked, model, prices=self.prices),
            seconds=max(0.0, self.timing.clock() - begun),
        )

    async def _one_reply(self, question: GradingQuestion, spent: list[Usage]) -> ChatReply:
        """A reply that has text; `spent` gets the usage of those without, too."""
        if question.is_page:
            page = "" if self.read_page is None else await self.read_page(question.prompt)
            return ChatReply(text=page, model=PAGES, usage=Usage())
        if self._outages >= OUTAGES_IN_A_ROW:
            raise JudgeError(f"the judge {self.name} failed {self._outages} times in a row; it is not asked again")
        if self.model is None:
            raise JudgeError("there is no judge in this run; name one with --judge")
        model = self.model
        request = ChatRequest(
            question.prompt,
            system=question.system,
            schema=question.schema,
            purpose=PURPOSE,
            temperature=self.loaded.rules.temperature,
            max_output_tokens=self.loaded.rules.max_output_tokens,
        )

        async def ask() -> ChatReply:
            reply = await model.complete(request)
            spent.append(reply.usage)
            if reply.outage:
                raise ModelError(reply.outage, is_retryable=True)
            return reply

        return await call_with_retry(
            ask, doing=f"ask {self.name}", error=ModelError, policy=self.retry, timing=self.timing
        )


def hash_of(question: GradingQuestion) -> str:
    """The start of the SHA-256 of the prompt."""
    return hashlib.sha256(f"{question.system}\0{question.prompt}".encode()).hexdigest()[:16]


def verdict_key(key: CaseKey, judge: str, *, question: GradingQuestion) -> VerdictKey:
    """The key of a question in the log."""
    return VerdictKey(key, judge, question.key, hash_of(question))


ANSWER_CHARACTERS = {AnswerFormat.EXACT: 40, AnswerFormat.SHORT: 1_800, AnswerFormat.LONG: 9_000}
"""What answers of each form usually have; the judge reads them."""
REPLY_TOKENS = 300
"""What a judge usually writes for one verdict; a RACE comparison or a cleaned article is far longer."""
LONG_REPLY_TOKENS = 4_000
_LONG = frozenset({"clean", "race"})


def rehearse(
    loaded: Loaded,
    ids: Sequence[str],
    *,
    epochs: int,
    policy: str | None,
    judges: Sequence[str],
    prices: Mapping[str, Price] = PRICES,
) -> list[ModelCost]:
    """The calls and the cost of a run, stage by stage; without `policy` the answers cost nothing.

    Exact for a judge whose replies are always readable, except that FACT is counted without its pages. The policy's
    part is an upper limit: every episode uses all its calls and all its tokens.
    """
    asked = sum((_judge_usage(loaded, example_id) for example_id in ids), Usage())
    stages = [("verdicts", judge, sum([asked] * epochs, Usage())) for judge in judges]
    if policy:
        limits = EpisodeLimits()
        turns = limits.max_calls + 1
        # Each turn reads the conversation so far again, half of the whole on average.
        read = turns * limits.max_tokens // 2
        episode = Usage(calls=turns, input_tokens=read, output_tokens=limits.max_tokens)
        stages.insert(0, ("answers, at most", policy, sum([episode] * len(ids) * epochs, Usage())))
    return [
        ModelCost(stage=stage, model=model, usage=usage, dollars=dollars or 0.0, is_priced=dollars is not None)
        for stage, model, usage in stages
        for dollars in [dollars_of(usage, model, prices=prices)]
    ]


def _judge_usage(loaded: Loaded, example_id: str) -> Usage:
    length = ANSWER_CHARACTERS[loaded.format_of(example_id)]
    counted: list[GradingQuestion] = []

    def note(question: GradingQuestion) -> tuple[str, ...]:
        counted.append(question)
        return ("x" * length,) * question.tries

    answer = Extracted("x" * length, "given answer")
    replay(loaded.grader.grade(Case(loaded.example(example_id), loaded.gold[example_id], answer)), note)
    asked = [question for question in counted if not question.is_page]
    return Usage(
        calls=len(asked),
        input_tokens=sum((len(one.prompt) + len(one.system)) // CHARS_PER_TOKEN for one in asked),
        output_tokens=sum(LONG_REPLY_TOKENS if one.key in _LONG else REPLY_TOKENS for one in asked),
    )


RunPhase = Literal["all", "answers", "verdicts"]
"""The part of a run that is done."""


Listener = Callable[[RunPhase, str], None]
"""Called after each answer and each verdict, with the failure or an empty text: for progress bars."""


EXAMPLE_SECONDS = 3600.0


@dataclass(eq=False)
class Runner:
    """Runs what is missing of one run and logs it. It computes no score: scores are computed from the logs.

    `concurrency` is the number of attempts at once. An attempt that takes longer than EXAMPLE_SECONDS is recorded as a
    failure. What the run did is in `answered`, `judged` and `failures` (one sentence for each example that failed), and
    in `stopped` why it stopped early, empty where it did not.
    """

    loaded: Loaded
    answers: Journal[AnswerRecord]
    _: KW_ONLY
    answerer: Answerer
    judges: Sequence[CaseJudge]
    clock: Callable[[], float]
    concurrency: InitVar[int] = 16
    check_budget: Callable[[], None] = lambda: None
    listener: Listener = lambda phase, failure: None
    prices: Mapping[str, Price] = field(default_factory=lambda: PRICES)
    answered: int = field(default=0, init=False)
    judged: int = field(default=0, init=False)
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
            record = self.answers.find(key)
            if stage != "verdicts" and (record is None or record.failure):
                record = await self._answer(key)
            if stage != "answers" and record is not None and record.is_final and not self.stopped:
                await self._judge(record)
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
                "seconds": max(0.0, self.clock() - begun),
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
                        guidance=self.loaded.benchmark.guidance,
                        epoch=key.epoch,
                    )
        except BoundaryError as failure:
            return AnswerRecord(id=key.id, epoch=key.epoch, failure=str(failure))

    async def _judge(self, record: AnswerRecord) -> None:
        case = case_of(self.loaded, record)
        failure = ""
        for judge in self.judges:
            try:
                with boundary(ModelError, f"grade example {record.id}"):
                    await judge.grade(record.key, self.loaded.grader.grade(case))
            except BoundaryError as outage:
                failure = str(outage)
        self.judged += not failure
        self._note("verdicts", record.key, failure=failure)

    def _note(self, stage: RunPhase, key: CaseKey, *, failure: str) -> None:
        if failure:
            self.failures.append(f"example {key.id}, epoch {key.epoch}: {failure}")
        self.listener(stage, failure)


def case_of(loaded: Loaded, record: AnswerRecord) -> Case:
    """The answer as it is graded. The same record always gives the same case, also when scores are recomputed."""
    return Case(loaded.example(record.id), loaded.gold[record.id], extracted(loaded, record), record.trajectory)


def extracted(loaded: Loaded, record: AnswerRecord) -> Extracted:
    """The text that is judged, by the rules of the mode."""
    if record.trajectory is not None:
        return extract(record.trajectory, loaded.rules)
    return judged_text(Extracted(record.given or "", "given answer"), loaded.rules)


def case_keys(ids: Sequence[str], epochs: int) -> tuple[CaseKey, ...]:
    """Every example of the subset in every epoch, epoch by epoch."""
    return tuple(CaseKey(example_id, epoch) for epoch in range(epochs) for example_id in ids)
