"""One judge at work: questions asked within a limit, replies logged before they are used, outages kept apart from verdicts."""

import asyncio
import hashlib
from collections.abc import Callable
from typing import NamedTuple, Protocol

from rubricem_agent.evals.grading.grade import Grade
from rubricem_agent.evals.grading.question import Asked, Grading, Question, Replies
from rubricem_agent.evals.modes import Rules
from rubricem_agent.evals.run.journal import Journal
from rubricem_agent.evals.run.money import dollars_of
from rubricem_agent.evals.run.records import CaseKey, VerdictKey, VerdictRecord
from rubricem_env.domain.errors import JudgeError, ModelError, boundary
from rubricem_env.llm.base import ChatModel, ChatReply, ChatRequest, advise_on_model_error
from rubricem_env.llm.retry import RetryPolicy, Timing, call_with_retry
from rubricem_env.llm.usage import CeilingReached, Usage

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
    """Called before each question; raises CeilingReached."""


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
            CeilingReached: the budget is used up.
        """
        try:
            questions = next(grading)
            while True:
                questions = grading.send(await self._round(key, questions))
        except StopIteration as finished:
            grade: Grade = finished.value
            return grade

    async def _round(self, key: CaseKey, questions: tuple[Question, ...]) -> tuple[Replies, ...]:
        # All of a round come to their end, so that what was paid for is in the log before a failure is passed on.
        results = await asyncio.gather(
            *(self._replies(key, question) for question in questions), return_exceptions=True
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            raise next((one for one in failures if isinstance(one, CeilingReached)), failures[0])
        return tuple(result for result in results if not isinstance(result, BaseException))

    async def _replies(self, key: CaseKey, question: Question) -> Replies:
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

    def judge_of(self, question: Question) -> str:
        return PAGES if question.asked is Asked.PAGE else self.name

    async def _ask(self, key: CaseKey, question: Question) -> VerdictRecord:
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

    async def _one_reply(self, question: Question) -> ChatReply:
        if question.asked is Asked.PAGE:
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
            advise=advise_on_model_error,
            policy=self._terms.retry,
            timing=self._terms.timing,
        )

    def _request(self, question: Question) -> ChatRequest:
        return ChatRequest(
            question.prompt,
            system=question.system,
            schema=question.schema,
            purpose=PURPOSE,
            temperature=self._rules.temperature,
            max_output_tokens=self._rules.max_output_tokens,
        )


def hash_of(question: Question) -> str:
    """The start of the SHA-256 of what is asked."""
    return hashlib.sha256(f"{question.system}\0{question.prompt}".encode()).hexdigest()[:16]


def verdict_key(key: CaseKey, judge: str, *, question: Question) -> VerdictKey:
    """How the log knows a question."""
    return VerdictKey(key.id, key.epoch, judge, question.key, hash_of(question))
