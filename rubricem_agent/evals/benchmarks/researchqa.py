"""ResearchQA: how far an answer covers each rubric item, on five levels, averaged to a coverage between 0 and 1.

Items go to the judge in batches (8 officially, 10 in the predecessor) and come back as one phrase per line. A batch
with the wrong number of lines is asked three times, then its question leaves the mean: it does not count as zero.

ResearchQA files: a JSON array of questions with rubric items.

ResearchQA: rubric items in batches, a phrase for each, and the mean level over the items of a question.

Recorded ResearchQA cases.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import Field, JsonValue, model_validator

from rubricem_agent.evals.base import (
    Benchmark,
    CaseInput,
    Example,
    Gold,
    RecordedInput,
    Replies,
    Rules,
    ScoringError,
    Unit,
    Unparsed,
)
from rubricem_agent.evals.files import Expectation, FileRow, assemble, json_array, read_row
from rubricem_agent.evals.grading import (
    Case,
    Grade,
    GradedExample,
    Grading,
    GradingQuestion,
    JudgePrompts,
    JudgeReplies,
    Totals,
    mean_metrics,
    mean_of,
    scores_of,
)
from rubricem_env.domain.base import Frozen, Text

LEVELS = {"Not at all": 1, "Barely": 2, "Moderately": 3, "Mostly": 4, "Completely": 5}
OFFICIAL_BATCH = 8
DRTULU_BATCH = 10
MAX_TRIES = 3


class RubricQuestion(Frozen):
    """A question's id and its rubric items, in file order."""

    id: Text
    rubric: tuple[Text, ...]


class RunScore(NamedTuple):
    """Coverage of every question that survived, in order; the unweighted mean, None where none survived."""

    coverages: tuple[tuple[str, float], ...]
    average: float | None
    judge_calls: int


def level_of(label: str) -> int:
    """1 to 5. Exact and case-sensitive: anything else raises ScoringError("KeyError"), which officially ends the run."""
    if label not in LEVELS:
        raise ScoringError("KeyError", f"the judge's label {label!r} is not one of {', '.join(LEVELS)}")
    return LEVELS[label]


def normalized(level: int) -> float:
    """The level on a scale from 0 to 1, in quarters."""
    return (level - 1) / 4


def coverage_of(labels: Sequence[str]) -> float:
    """The mean normalised level over the items of one question. Labels are looked up before the division."""
    levels = [level_of(label) for label in labels]
    if not levels:
        raise ScoringError("ZeroDivisionError", "the question has no rubric item")
    return sum(normalized(level) for level in levels) / len(levels)


def parse_batch(reply: str, *, size: int) -> list[str] | Unparsed:
    """The lines of a reply, stripped, blanks dropped; `Unparsed` unless there is exactly one per item."""
    # Only a newline separates, as in the official split: a form feed inside a line does not make two.
    lines = [line.strip() for line in reply.split("\n") if line.strip()]
    return lines if len(lines) == size else Unparsed(f"{len(lines)} lines for {size} items")


def score_run(
    questions: Sequence[RubricQuestion],
    answers: Mapping[str, object],
    *,
    replies: Mapping[tuple[str, int], Sequence[str]],
    batch_size: int = OFFICIAL_BATCH,
) -> RunScore:
    """The official run over questions in file order; `replies` are known by question id and batch number.

    A question without an answer is skipped; an empty answer is judged.
    """
    coverages: list[tuple[str, float]] = []
    calls = 0
    for question in questions:
        if question.id not in answers:
            continue
        batches = {key: attempts for key, attempts in replies.items() if key[0] == question.id}
        labels, asked = _judge_question(question, batches, batch_size=batch_size)
        calls += asked
        if isinstance(labels, Unparsed):
            continue
        coverages.append((question.id, _coverage_or_stop(labels, calls)))
    average = sum(coverage for _, coverage in coverages) / len(coverages) if coverages else None
    return RunScore(tuple(coverages), average, calls)


def strict_average(questions: Sequence[RubricQuestion], score: RunScore) -> float:
    """Strict mode: every question without a coverage counts 0. The mean over all of them."""
    if not questions:
        raise ScoringError("ZeroDivisionError", "there is no question")
    return sum(coverage for _, coverage in score.coverages) / len(questions)


def _judge_question(
    question: RubricQuestion, replies: Mapping[tuple[str, int], Sequence[str]], *, batch_size: int
) -> tuple[list[str] | Unparsed, int]:
    labels: list[str] = []
    calls = 0
    for number, start in enumerate(range(0, len(question.rubric), batch_size)):
        judge = Replies(replies.get((question.id, number), ()))
        batch = _judge_batch(judge, size=len(question.rubric[start : start + batch_size]))
        calls += judge.calls
        if isinstance(batch, Unparsed):
            return batch, calls
        labels.extend(batch)
    return labels, calls


def _judge_batch(judge: Replies, *, size: int) -> list[str] | Unparsed:
    parsed: list[str] | Unparsed = Unparsed("not asked")
    while judge.calls < MAX_TRIES:
        reply = judge.ask()
        if reply is None:
            # Only a wrong number of lines is asked again; a failed request drops the question at once.
            return Unparsed("the request failed")
        parsed = parse_batch(reply, size=size)
        if not isinstance(parsed, Unparsed):
            break
    return parsed


def _coverage_or_stop(labels: Sequence[str], judge_calls: int) -> float:
    try:
        return coverage_of(labels)
    except ScoringError as error:
        raise ScoringError(error.official, error.reason, judge_calls=judge_calls) from error


OFFICIAL = Expectation(rows=3750)
"""The test split."""


class ResearchQAGold(Gold):
    """The rubric items in file order, and the field of research."""

    rubric: tuple[Text, ...]
    field: Text
    general_domain: Text


class _RubricItem(FileRow):
    rubric_item: Text


class _Row(FileRow):
    id: Text = Field(min_length=1)
    query: Text = Field(min_length=1)
    rubric: tuple[_RubricItem, ...]
    field: Text = ""
    general_domain: Text = ""


def load(path: Path, *, expect: Expectation = OFFICIAL) -> Benchmark[ResearchQAGold]:
    """Queries for the agent; rubric items in the gold."""
    rows = [read_row(place, _Row) for place in json_array(path)]
    gold = [
        ResearchQAGold(
            id=row.id,
            rubric=tuple(item.rubric_item for item in row.rubric),
            field=row.field,
            general_domain=row.general_domain,
        )
        for row in rows
    ]
    return assemble(path, [Example(id=row.id, prompt_text=row.query) for row in rows], gold=gold, expect=expect)


class ResearchQAGrader:
    """ResearchQA in any mode; the modes differ in the size of a batch and in what a failure counts."""

    is_binary = False

    def __init__(self, rules: Rules, prompts: JudgePrompts) -> None:
        self._rules = rules
        self._prompts = prompts

    @classmethod
    def for_rules(cls, rules: Rules) -> "ResearchQAGrader":
        return cls(rules, JudgePrompts.read("researchqa"))

    @property
    def prompt_hash(self) -> str:
        return self._prompts.hash

    def grade(self, case: Case) -> Grading:
        """One round: every batch."""
        gold = case.gold_as(ResearchQAGold)
        batches = list(self._batches(gold))
        replies = yield tuple(self._question(n, batch, answer=case.answer.text) for n, batch in enumerate(batches))
        return self._grade(gold, batches, replies=replies)

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        """The unweighted mean over the questions that survived, overall and by domain."""
        return Totals("coverage", {"coverage": mean_of(scores_of(graded)), **mean_metrics(graded)})

    def _batches(self, gold: ResearchQAGold) -> Iterator[tuple[str, ...]]:
        for start in range(0, len(gold.rubric), self._rules.batch_size):
            yield gold.rubric[start : start + self._rules.batch_size]

    def _question(self, number: int, batch: Sequence[str], *, answer: str) -> GradingQuestion:
        items = "\n".join(f"{place}. {item}" for place, item in enumerate(batch, start=1))
        size = len(batch)
        return GradingQuestion(
            key=f"batch-{number}",
            prompt=self._prompts.user("researchqa", answer=answer, items=items, count=str(size)),
            tries=self._rules.tries,
            accepts=lambda reply: not isinstance(parse_batch(reply, size=size), Unparsed),
        )

    def _grade(
        self, gold: ResearchQAGold, batches: Sequence[Sequence[str]], *, replies: Sequence[JudgeReplies]
    ) -> Grade:
        labels: list[str] = []
        failed = 0
        for batch, tries in zip(batches, replies, strict=True):
            read = parse_batch(tries[-1], size=len(batch))
            failed += len(tries) - (not isinstance(read, Unparsed))
            labels += [""] * len(batch) if isinstance(read, Unparsed) else read
        said = {f"item-{number}": label for number, label in enumerate(labels) if label}
        try:
            if "" in labels:
                raise ScoringError(
                    "dropped", f"a batch got no {self._rules.batch_size} lines in {self._rules.tries} tries"
                )
            coverage = coverage_of(labels)
        except ScoringError as refusal:
            score = 0.0 if self._rules.is_strict else None
            return Grade(score, 0.0, refusal.reason, labels=said, unreadable=failed)
        by_domain = {f"domain:{gold.general_domain}": coverage} if gold.general_domain else {}
        return Grade(coverage, coverage, metrics=by_domain, labels=said, unreadable=failed)


class ResearchQALevelInput(RecordedInput):
    label: Text


class ResearchQAItemInput(RecordedInput):
    labels: tuple[Text, ...]


class ResearchQARunInput(RecordedInput):
    items: tuple[RubricQuestion, ...]
    answers: dict[str, JsonValue]
    batch_size: int = Field(default=OFFICIAL_BATCH, ge=1)
    judge_replies_by_item_and_batch: dict[str, tuple[Text, ...]]

    @model_validator(mode="after")
    def _keys_name_a_batch(self) -> Self:
        for key in self.judge_replies_by_item_and_batch:
            if not key.rpartition(":")[2].isdecimal():
                raise ValueError(f"replies are recorded under {key!r}, which is not of the form id:number")
        return self

    def replies(self) -> dict[tuple[str, int], tuple[str, ...]]:
        """The recorded replies by question id and batch number."""
        split = {key: key.rpartition(":") for key in self.judge_replies_by_item_and_batch}
        return {
            (split[key][0], int(split[key][2])): replies
            for key, replies in self.judge_replies_by_item_and_batch.items()
        }


def recorded_score_level(case_input: CaseInput) -> object:
    level = level_of(ResearchQALevelInput.read(case_input).label)
    return {"number": level, "normalized": normalized(level)}


def recorded_score_item(case_input: CaseInput) -> object:
    return {"coverage": coverage_of(ResearchQAItemInput.read(case_input).labels)}


def recorded_score_run(case_input: CaseInput) -> object:
    case = ResearchQARunInput.read(case_input)
    score = score_run(case.items, case.answers, replies=case.replies(), batch_size=case.batch_size)
    return {
        "scored_item_ids": [item_id for item_id, _ in score.coverages],
        "coverages": dict(score.coverages),
        "average": score.average,
        "judge_calls": score.judge_calls,
    }


UNITS = {"level": Unit(recorded_score_level), "item": Unit(recorded_score_item), "run": Unit(recorded_score_run)}
