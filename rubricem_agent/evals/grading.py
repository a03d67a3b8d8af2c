"""Grades one answer: what a grader asks of a judge or a page, and what the answer comes to."""

import hashlib
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, Never, TypeVar

from pydantic import BaseModel, JsonValue

from rubricem_agent.evals.dataset import Example, Gold
from rubricem_agent.evals.extraction import Extracted
from rubricem_agent.evals.official_prompts import OfficialTemplate
from rubricem_agent.evals.reply_parsing import CUT, Unparsed
from rubricem_agent.prompting import AgentPromptFile, fill, read_prompt
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.scaffold.untrusted import defuse
from rubricem_records.evaluations.logs import CutReply
from rubricem_records.evaluations.rules import Rules

_NOTHING: Mapping[str, Never] = MappingProxyType({})

GoldT = TypeVar("GoldT", bound=Gold)
ResultT = TypeVar("ResultT")


class Case(NamedTuple):
    """One answer with everything that a grader may look at."""

    example: Example
    gold: Gold
    answer: Extracted
    trajectory: Trajectory | None = None

    def gold_as(self, kind: type[GoldT]) -> GoldT:
        """The gold as the grader's own type; another one is a bug of the suite."""
        assert isinstance(self.gold, kind), f"{type(self.gold).__name__} is no {kind.__name__}"
        return self.gold


class Grade(NamedTuple):
    """One graded answer."""

    score: float | None
    """What enters the mean; None where the mode leaves the answer out."""
    worst: float
    """The score if every failure counted as the worst case."""
    excluded: str = ""
    """Why the score is None."""
    metrics: Mapping[str, float] = _NOTHING
    """The named numbers of this answer, such as axes."""
    labels: Mapping[str, str] = _NOTHING
    """What the judge said, by question: the agreement of judges is computed from these."""
    unreadable: int = 0
    """Replies from which no verdict could be read. `Grader.grade` counts them, as it does those below."""
    read_differently: int = 0
    """Replies that the official parse reads in another way than ours; counted in the mode that grades by it."""
    record: Mapping[str, JsonValue] = _NOTHING
    """What the totals of the benchmark need beyond numbers."""


class GradingQuestion(NamedTuple):
    """One question about one answer."""

    key: str
    """Names it within the grading of the answer."""
    prompt: str
    system: str = ""
    tries: int = 1
    """The most replies that are requested, until one is accepted."""
    parse: Callable[[str], object] = str
    """The one verdict of a reply in the form that the prompt asks for; one that is `Unparsed` is not accepted."""
    official_parse: Callable[[str], object] | None = None
    """How the official scorer reads a reply, where replies are read by it; else they are read by `parse`."""
    schema: type[BaseModel] | None = None
    """Offered to servers with a JSON mode; the reply is not checked against it."""
    is_fact: bool = False
    """Whether it is about citations, which some protocols have checked by another model."""
    is_page: bool = False
    """Whether the prompt is a url, and the reply the text of the page: empty where it could not be read."""

    def read(self, reply: str) -> "ReadReply":
        """What a reply says. One that the token limit cut says nothing, except to an official parse."""
        ours = CUT if isinstance(reply, CutReply) else self.parse(reply)
        if self.official_parse is None:
            return ReadReply(ours)
        official = self.official_parse(reply)
        # Two refusals agree, whatever their reasons.
        is_same = (isinstance(ours, Unparsed) and isinstance(official, Unparsed)) or ours == official
        return ReadReply(official, differs=not is_same)

    def accepts(self, reply: str) -> bool:
        return not isinstance(self.read(reply).verdict, Unparsed)


class ReadReply(NamedTuple):
    """What a reply says."""

    verdict: Any
    """`Unparsed` where it is none."""
    differs: bool = False
    """Whether our parse and the official one read it differently."""


JudgeReplies = tuple[str, ...]
"""All replies to one question, in order: the last one was accepted, or the tries are used up."""

Asking = Generator[tuple[GradingQuestion, ...], tuple[Any, ...], ResultT]
"""Yields rounds of independent questions, is sent what the last reply to each says, returns what came of them."""

Grading = Generator[tuple[GradingQuestion, ...], tuple[JudgeReplies, ...], Grade]
"""The grading of one answer: as `Asking`, but it is sent the replies themselves, and reads them.

It does no I/O, so that a recorded grading is replayed by sending the recorded replies. A reply that cannot be read is
part of the grade, never an exception.
"""


Totals = Mapping[str, float | None]
"""The named numbers over all graded answers; None where there is nothing to average."""


@dataclass(frozen=True)
class Grader:
    """One benchmark in one mode: how one answer is graded, and what all grades add up to."""

    rules: Rules
    grading: Callable[[Case, "Grader"], Asking[Grade]]
    headline: str
    """The metric that a table shows."""
    totals: Callable[[Sequence[Grade], Rules], Totals] | None = None
    """Without it: the mean score as the headline, and the mean of every named number."""
    texts: Callable[[Sequence[Grade], Rules], Mapping[str, str]] | None = None
    """What the official scorer prints over all grades, letter by letter."""
    prompts: tuple[str, ...] = ()
    """The prompt files `judge_NAME.md` that it asks with."""
    is_binary: bool = False
    """Whether every score is 0 or 1."""
    official: Mapping[str, OfficialTemplate] = field(default_factory=dict)
    """The official prompts in place of our own, where the user has them."""

    @cached_property
    def _prompt_files(self) -> Mapping[str, AgentPromptFile]:
        return {name: read_prompt(f"judge_{name}") for name in self.prompts}

    @property
    def prompt_hash(self) -> str:
        """One hash for all judge prompts; empty without any."""
        if not self.prompts:
            return ""
        hashes = {name: prompt.hash for name, prompt in self._prompt_files.items()}
        if self.official:
            hashes = {name: template.sha256 for name, template in self.official.items()}
        together = "".join(f"{name}:{text_hash};" for name, text_hash in sorted(hashes.items()))
        return hashlib.sha256(together.encode()).hexdigest()[:16]

    def user_prompt(
        self, name: str, *, variant: str = "", official: Mapping[str, str] = _NOTHING, **values: str
    ) -> str:
        """The user message, its placeholders filled with text whose control tokens are inert.

        `variant` is the language of an official prompt, and `official` are values that it shows in another form.
        """
        inert = {key: defuse(value) for key, value in values.items()}
        if self.official:
            template = self.official[f"{name}.{variant}" if variant else name]
            return template.fill({**inert, **{key: defuse(value) for key, value in official.items()}})
        return fill(self._prompt_files[name].section("user"), inert)

    def system_prompt(self, name: str) -> str:
        """The system message; empty where the prompt has none."""
        key = f"{name}.system"
        if self.official:
            return self.official[key].fill({}) if key in self.official else ""
        prompt = self._prompt_files[name]
        return prompt.section("system") if "<!-- section: system -->" in prompt.text else ""

    def question(
        self,
        key: str,
        name: str,
        *,
        parse: Callable[[str], object],
        official_parse: Callable[[str], object] | None = None,
        tries: int | None = None,
        schema: type[BaseModel] | None = None,
        variant: str = "",
        official: Mapping[str, str] = _NOTHING,
        is_fact: bool = False,
        **values: str,
    ) -> GradingQuestion:
        """A question in the words of the prompt `name`, with as many tries as the mode has where none are given.

        `official_parse` is how the official scorer reads a reply, where that is not what `parse` does.
        """
        return GradingQuestion(
            key,
            self.user_prompt(name, variant=variant, official=official, **values),
            self.system_prompt(name),
            tries or self.rules.tries,
            parse,
            official_parse if self.rules.is_lenient else None,
            schema,
            is_fact,
        )

    def grade(self, case: Case) -> Grading:
        """Ask and grade. Each reply is read here, once, and counted where it could not be read."""
        grading = self.grading(case, self)
        unreadable = differing = 0
        try:
            questions = next(grading)
            while True:
                replies = yield questions
                read = [question.read(tries[-1]) for question, tries in zip(questions, replies, strict=True)]
                unreadable += sum(map(len, replies)) - sum(not isinstance(each.verdict, Unparsed) for each in read)
                differing += sum(each.differs for each in read)
                questions = grading.send(tuple(each.verdict for each in read))
        except StopIteration as finished:
            grade: Grade = finished.value
            if not all(map(math.isfinite, (grade.score or 0.0, grade.worst, *grade.metrics.values()))):
                grade = self.excluded("the judge's numbers add up to none")
            return grade._replace(unreadable=unreadable, read_differently=differing)

    def total(self, grades: Sequence[Grade]) -> Totals:
        """The benchmark's own arithmetic over all grades, sorted by id and epoch."""
        if self.totals is not None:
            return self.totals(grades, self.rules)
        return {self.headline: mean_score(grades), **mean_metrics(grades)}

    def excluded(self, reason: str) -> Grade:
        """The grade of an answer that the mode leaves out; in strict mode it counts 0."""
        return Grade(0.0 if self.rules.is_strict else None, 0.0, reason)


def numbered(lines: Sequence[str]) -> str:
    """The lines as a list numbered from 1."""
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))


def mean_of(values: Sequence[float]) -> float | None:
    """The mean; None where there is no value."""
    return sum(values) / len(values) if values else None


def mean_score(grades: Sequence[Grade]) -> float | None:
    """The mean of the scores that count."""
    return mean_of([grade.score for grade in grades if grade.score is not None])


def mean_metrics(grades: Sequence[Grade]) -> dict[str, float | None]:
    """The plain mean of each named number over the scored answers that have it, names in order of first appearance."""
    columns: dict[str, list[float]] = {}
    for grade in grades:
        if grade.score is not None:
            for name, value in grade.metrics.items():
                columns.setdefault(name, []).append(value)
    return {name: mean_of(values) for name, values in columns.items()}


def replay(grading: Grading, find: Callable[[GradingQuestion], JudgeReplies | None]) -> Grade | GradingQuestion:
    """Send recorded replies round by round, without a judge; the first question without a reply where one lacks it."""
    try:
        questions = next(grading)
        while True:
            replies = [(question, find(question)) for question in questions]
            missing = next((question for question, tries in replies if not tries), None)
            if missing is not None:
                return missing
            questions = grading.send(tuple(tries for _, tries in replies if tries))
    except StopIteration as finished:
        grade: Grade = finished.value
        return grade
