"""Answers from a file, by example id."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rubricem_agent.evals.dataset import Example
from rubricem_agent.evals.files import read_answers
from rubricem_agent.evals.shown_value import shown
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_records.evaluations.logs import AnswerRecord


@dataclass(frozen=True)
class GivenAnswers:
    """Answers from a file, by example id."""

    name: str
    answers: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> "GivenAnswers":
        """The answers of a file. Raises FileFormatError where a line is malformed, or an id is given twice."""
        return cls(f"file:{path.name}", read_answers(path))

    def refuse_unknown(self, known: Sequence[str], *, ids: str) -> None:
        """Compare the ids with those of the benchmark, which `ids` describes.

        Raises FileFormatError where an answer has an id of no example.
        """
        unknown = sorted(self.answers.keys() - set(known))
        if unknown:
            raise FileFormatError(
                f"{self.name} has {len(unknown)} of {len(self.answers)} answers to no example, the first to "
                f"{unknown[0]!r}; the ids of this benchmark are: {ids}, here {known[0]!r} to {known[-1]!r}. Correct "
                "the ids, or leave these lines out."
            )

    def refuse_changed(self, answered: Iterable[AnswerRecord]) -> None:
        """Compare the file with the answers that a run has already taken from it; new answers are allowed.

        Raises UsageError where an answer was changed or removed.
        """
        for record in answered:
            now = self.answers.get(record.id)
            if record.is_final and record.given != now:
                raise UsageError(
                    f"{self.name} has changed since the run took its answers: example {record.id} was "
                    f"{shown(record.given)} and is now {shown(now)}; its numbers would mix both. Use another --out."
                )

    async def answer(
        self, example: Example, *, answer_format: AnswerFormat, guidance: str = "", epoch: int = 0
    ) -> AnswerRecord:
        """The answer as given, even an empty one; an example without a line is a failure."""
        given = self.answers.get(example.id)
        failure = "" if given is not None else f"{self.name} has no answer for this example"
        return AnswerRecord(id=example.id, epoch=epoch, given=given, failure=failure)
