"""What a run of a recipe is expected to look like: the range over the seeds of earlier runs, step by step.

Curves for the shipped configs lie in `expected/`, one file a recipe and config; `rubricem ablate` writes new ones.
They tell a person whether a run goes as others went. They judge nothing by themselves, and no run with another
policy, batch or rate is held against them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ConfigDict, ValidationError

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


class DecisiveSettings(Frozen):
    """What the curve of a recipe depends on."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=False)

    policy: str
    questions_per_step: int
    group_size: int
    window: int
    learning_rate: float
    temperature: float
    held_out: str


class Expected(Frozen):
    """The curve of a recipe."""

    recipe: str
    settings: DecisiveSettings
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


def make_expected(recipe: str, logs: Sequence[RunLog], *, settings: Mapping[str, Any], made_by: str) -> Expected:
    """The range over the runs of a recipe, at the steps that all of them examined; `settings` are those of any of them.

    Raises:
        FileFormatError: the settings are not those of a local run.
    """
    try:
        decisive = DecisiveSettings.model_validate(settings)
    except ValidationError as cause:
        raise FileFormatError(f"the settings of {recipe} are of no local run {first_problem(cause)}") from cause
    curves = [{exam.step: exam.held_out["answer"] for exam in log.exams} for log in logs]
    shared = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    points = []
    for step in shared:
        values = [curve[step] for curve in curves]
        points.append(ExpectedPoint(step=step, mean=sum(values) / len(values), lowest=min(values), highest=max(values)))
    return Expected(
        recipe=recipe,
        settings=decisive,
        seeds=len(logs),
        made_by=made_by,
        held_out_answer=tuple(points),
    )


def find_expected(recipe: str, settings: Mapping[str, Any], folder: Path = SHIPPED) -> Expected | None:
    """The curve of a recipe under a run's settings; None where there is none, or the settings are of no local run.

    Raises:
        FileFormatError: a file of the folder is no curve.
    """
    try:
        wanted = DecisiveSettings.model_validate(settings)
    except ValidationError:
        return None
    curves = (_read_expected(path) for path in sorted(folder.glob("*.json")))
    return next((curve for curve in curves if (curve.recipe, curve.settings) == (recipe, wanted)), None)


def _read_expected(path: Path) -> Expected:
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
