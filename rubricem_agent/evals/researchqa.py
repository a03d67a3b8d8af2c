"""ResearchQA: how far an answer covers each rubric item, on five levels, averaged to a coverage between 0 and 1.

Items go to the judge in batches (8 officially, 10 in the predecessor) and come back as one phrase per line. A batch
with the wrong number of lines is asked three times, then its question leaves the mean: it does not count as zero.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rubricem_agent.evals.errors import ScoringError
from rubricem_agent.evals.replies import Replies
from rubricem_agent.evals.reply_json import Unparsed
from rubricem_env.domain.base import Frozen, Text

LEVELS = {"Not at all": 1, "Barely": 2, "Moderately": 3, "Mostly": 4, "Completely": 5}
OFFICIAL_BATCH = 8
DRTULU_BATCH = 10
MAX_TRIES = 3


class Question(Frozen):
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
    questions: Sequence[Question],
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


def strict_average(questions: Sequence[Question], score: RunScore) -> float:
    """Strict mode: every question without a coverage counts 0. The mean over all of them."""
    if not questions:
        raise ScoringError("ZeroDivisionError", "there is no question")
    return sum(coverage for _, coverage in score.coverages) / len(questions)


def _judge_question(
    question: Question, replies: Mapping[tuple[str, int], Sequence[str]], *, batch_size: int
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
