"""Answers from a file: JSON Lines of {"id", "answer"}, as any other system may have written them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import AliasChoices, Field

from rubricem_agent.evals.errors import BenchmarkFileError
from rubricem_agent.evals.files.source import Advice, Row, json_lines, read_row
from rubricem_agent.evals.run.answering import Answered, Task
from rubricem_agent.evals.run.records import AnswerRecord
from rubricem_env.domain.base import Text
from rubricem_env.domain.errors import UsageError

ANSWERS_FILE = Advice(
    "an answers file",
    "name the file of your answers with --policy file:ANSWERS.jsonl",
    'Write one line for each example: {"id": ..., "answer": ...}.',
)
_SHOWN = 60


class _AnswerRow(Row):
    id: Text | int
    answer: Text = Field(validation_alias=AliasChoices("answer", "article", "response", "prediction"))


class GivenAnswers:
    """Hands out answers by example id."""

    def __init__(self, name: str, answers: Mapping[str, str]) -> None:
        self._name = name
        self._answers = answers

    @classmethod
    def read(cls, path: Path) -> "GivenAnswers":
        """The answers of a file; DeepResearchBench's own article files are read as well.

        Raises:
            BenchmarkFileError: a line is malformed, or an id is given twice.
        """
        answers: dict[str, str] = {}
        for place in json_lines(path, ANSWERS_FILE):
            row = read_row(place, _AnswerRow)
            if str(row.id) in answers:
                raise BenchmarkFileError(
                    f"{place.where}: the id {row.id!r} already has an answer; a file holds one per example. "
                    "Remove one of the two lines."
                )
            answers[str(row.id)] = row.answer
        return cls(f"file:{path.name}", answers)

    @property
    def name(self) -> str:
        return self._name

    def refuse_unknown(self, known: Sequence[str], *, ids: str) -> None:
        """Hold the ids to those of the benchmark: `ids` says in words what they are.

        Raises:
            BenchmarkFileError: an answer is to no example.
        """
        unknown = sorted(self._answers.keys() - set(known))
        if unknown:
            raise BenchmarkFileError(
                f"{self._name} has {len(unknown)} of {len(self._answers)} answers to no example, the first to "
                f"{unknown[0]!r}; the ids of this benchmark are: {ids}, here {known[0]!r} to {known[-1]!r}. Correct "
                "the ids, or leave these lines out."
            )

    def refuse_changed(self, answered: Iterable[AnswerRecord]) -> None:
        """Hold the file to what a run has taken from it already; answers that are new in it do no harm.

        Raises:
            UsageError: an answer has changed, or is gone.
        """
        for record in answered:
            now = self._answers.get(record.id)
            if record.is_final and record.given != now:
                raise UsageError(
                    f"{self._name} has changed since the run took its answers: example {record.id} was "
                    f"{_shown(record.given)} and is now {_shown(now)}; its numbers would mix both. Use another --out."
                )

    async def answer(self, task: Task) -> Answered:
        """The answer as it stands there, also an empty one; an example without a line is a failure."""
        given = self._answers.get(task.example.id)
        if given is None:
            return Answered(failure=f"{self._name} has no answer for this example")
        return Answered(given=given)

    async def aclose(self) -> None:
        return None


def _shown(answer: str | None) -> str:
    if answer is None:
        return "not there"
    return repr(answer) if len(answer) <= _SHOWN else f"{answer[:_SHOWN]!r}..."
