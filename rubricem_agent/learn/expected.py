"""What a run of a recipe is expected to look like: the range over the seeds of earlier runs, step by step.

Curves for the shipped config lie in `expected/`, one file a recipe; `rubricem ablate` writes new ones. They tell a
person whether a run goes as others went. They judge nothing by themselves: another policy has other curves.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from rubricem_agent.learn.metrics_log import RunLog
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory_json import first_problem

SHIPPED = Path(__file__).parent / "expected"


class ExpectedPoint(Frozen):
    """True quality of the answers to held-out questions after a step, over seeds."""

    step: int
    mean: float
    lowest: float
    highest: float


class Expected(Frozen):
    """The curve of a recipe."""

    recipe: str
    seeds: int
    made_by: str
    """The command."""
    held_out_answer: tuple[ExpectedPoint, ...]


class Departure(NamedTuple):
    """The latest step at which a run can be held against its expected curve."""

    step: int
    value: float
    point: ExpectedPoint

    @property
    def sentence(self) -> str:
        if self.point.lowest <= self.value <= self.point.highest:
            verdict = "as expected"
        else:
            verdict = "below what is expected" if self.value < self.point.lowest else "above what is expected"
        return (
            f"{verdict}: held-out answers {self.value:.3f} at step {self.step}; earlier runs of this recipe lay between "
            f"{self.point.lowest:.3f} and {self.point.highest:.3f}"
        )


def make_expected(recipe: str, logs: Sequence[RunLog], *, made_by: str) -> Expected:
    """The range over the runs of a recipe, at the steps that all of them examined."""
    curves = [{exam.step: exam.held_out["answer"] for exam in log.exams} for log in logs]
    shared = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    points = []
    for step in shared:
        values = [curve[step] for curve in curves]
        points.append(ExpectedPoint(step=step, mean=sum(values) / len(values), lowest=min(values), highest=max(values)))
    return Expected(recipe=recipe, seeds=len(logs), made_by=made_by, held_out_answer=tuple(points))


def load_expected(recipe: str, folder: Path = SHIPPED) -> Expected | None:
    """The curve of a recipe by its name; None where there is none.

    Raises:
        FileFormatError: the file is no curve.
    """
    path = folder / f"{recipe}.json"
    if not path.is_file():
        return None
    try:
        return Expected.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as cause:
        reason = first_problem(cause) if isinstance(cause, ValidationError) else "it is not UTF-8."
        raise FileFormatError(f"{path} is no expected curve {reason} Make it anew with rubricem ablate.") from cause


def compare_with(expected: Expected, log: RunLog) -> Departure | None:
    """The run against the curve at the latest step that both have."""
    points = {point.step: point for point in expected.held_out_answer}
    shared = [exam for exam in log.exams if exam.step in points]
    if not shared:
        return None
    latest = shared[-1]
    return Departure(latest.step, latest.held_out["answer"], points[latest.step])
