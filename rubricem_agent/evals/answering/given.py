"""Answers from a file: JSON Lines of {"id", "answer"}, as any other system may have written them."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import AliasChoices, Field

from rubricem_agent.evals.errors import BenchmarkFileError
from rubricem_agent.evals.files.source import Row, json_lines, read_row
from rubricem_agent.evals.run.answering import Answered, Task
from rubricem_env.domain.base import Text


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
        for place in json_lines(path):
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

    async def answer(self, task: Task) -> Answered:
        """The answer as it stands there, also an empty one; an example without a line is a failure."""
        given = self._answers.get(task.example.id)
        if given is None:
            return Answered(failure=f"{self._name} has no answer for this example")
        return Answered(given=given)

    async def aclose(self) -> None:
        return None
