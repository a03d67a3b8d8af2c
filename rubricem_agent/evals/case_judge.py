"""The judge of a run's answers: it asks a grading's questions and logs each reply before it is used.

An outage of the judge is recorded apart from its verdicts, and asked again.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from rubricem_agent.evals.benchmark import Loaded
from rubricem_agent.evals.costs import dollars_of
from rubricem_agent.evals.grading import Grade, Grading, GradingQuestion, JudgeReplies
from rubricem_env.domain.errors import JudgeError, ModelError, boundary
from rubricem_env.llm.chat import ChatModel, ChatReply, ChatRequest
from rubricem_env.llm.limits.retry import RetryPolicy, call_with_retry
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.prices import PRICES, Price
from rubricem_env.llm.thoughts import without_thoughts
from rubricem_env.llm.usage import SpendLimitReached, Usage
from rubricem_records.evaluations.logs import PAGES, CaseKey, CutReply, VerdictKey, VerdictRecord
from rubricem_records.files.journal import Journal

PURPOSE = "judge"


OUTAGES_IN_A_ROW = 20
"""After this many the judge counts as down, and the rest is left for a resumed run."""


ReadPage = Callable[[str], Awaitable[str]]
"""Reads the web page of a url; an empty text where it cannot be read."""


@dataclass(eq=False)
class CaseJudge:
    """Grades cases with one judge. Safe for many cases at once on one event loop.

    `retry` is for requests that fail; a reply that cannot be read has its own tries. `slots` are shared by all judges
    of a run. `check_budget` is called before each question and raises SpendLimitReached.
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
    fact_model: ChatModel | None = None
    """Asked about citations in place of the model, where the protocol has another judge for them."""
    read_page: ReadPage | None = None
    prices: Mapping[str, Price] = field(default_factory=lambda: PRICES)
    asked: set[CaseKey] = field(default_factory=set, init=False)
    """The cases about which it was asked, and not all known from the log."""
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
            raise next((failure for failure in failures if isinstance(failure, SpendLimitReached)), failures[0])
        return tuple(result for result in results if not isinstance(result, BaseException))

    async def _replies(self, key: CaseKey, question: GradingQuestion) -> JudgeReplies:
        known = self.journal.find(verdict_key(key, self._judge_of(question), question=question))
        if known is not None and known.is_final:
            return known.verdicts
        async with self.slots:
            self.check_budget()
            record = await self._ask(key, question)
        self.journal.append(record)
        self.asked.add(key)
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
                    said = without_thoughts(replies[-1].text)
                    if question.accepts(CutReply(said) if replies[-1].finish == "length" else said):
                        break
        except (JudgeError, ModelError) as outage:
            failure = str(outage)
        usage = sum(spent, Usage())
        model = replies[-1].model if replies else ""
        asked = self._model_of(question)
        names = (model,) if question.is_page or asked is None else (asked.name, model)
        return VerdictRecord(
            benchmark=self.loaded.name,
            mode=self.loaded.rules.mode,
            id=key.id,
            epoch=key.epoch,
            judge=self._judge_of(question),
            question=question.key,
            asked=hash_of(question),
            replies=tuple(reply.text for reply in replies),
            cut=tuple(at for at, reply in enumerate(replies) if reply.finish == "length"),
            model=model,
            failure=failure,
            usage=usage,
            dollars=dollars_of(usage, *names, prices=self.prices),
            seconds=self.timing.clock() - begun,
        )

    def _model_of(self, question: GradingQuestion) -> ChatModel | None:
        return self.fact_model if question.is_fact and self.fact_model is not None else self.model

    async def _one_reply(self, question: GradingQuestion, spent: list[Usage]) -> ChatReply:
        """A reply that has text; `spent` gets the usage of those without, too."""
        if question.is_page:
            page = "" if self.read_page is None else await self.read_page(question.prompt)
            return ChatReply(text=page, model=PAGES, usage=Usage())
        if self._outages >= OUTAGES_IN_A_ROW:
            raise JudgeError(f"the judge {self.name} failed {self._outages} times in a row; it is not asked again")
        if self.model is None:
            raise JudgeError("there is no judge in this run; name one with --judge")
        model = self._model_of(question) or self.model
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
