"""Expected curves: the range over the seeds of earlier runs of a recipe, step by step.

The shipped ones are in `expected/`, one file a recipe and config; `python -m research.ablate` writes new ones. A run
with another policy, batch or rate is not compared with them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.inputs import read_text, validating
from rubricem_env.domain.stage_set import DEEP_RESEARCH
from rubricem_records.runs.run_log import RunLog, answers_by_step

SHIPPED = Path(__file__).parent / "expected"


class ExpectedPoint(Frozen):
    """True quality of the answers to held-out questions after a step, over seeds."""

    step: int
    mean: float
    lowest: float
    highest: float


class DecisiveSettings(Frozen):
    """The settings that the curve of a recipe depends on."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=False)

    scaffold: str = DEEP_RESEARCH.name
    policy: str
    data: str | None = None
    questions_per_step: int
    group_size: int
    window: int
    ahead: int = 0
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


def make_expected(recipe: str, logs: Sequence[RunLog], *, settings: Mapping[str, Any], made_by: str) -> Expected:
    """The range over the runs of a recipe, at the steps that all of them evaluated.

    `settings` are those of any of the runs.

    Raises:
        FileFormatError: the settings are not those of a local run.
    """
    with validating(f"the settings of {recipe} are not those of a local run"):
        decisive = DecisiveSettings.model_validate(settings)
    points = tuple(
        ExpectedPoint(step=step, mean=sum(values) / len(values), lowest=min(values), highest=max(values))
        for step, values in answers_by_step(logs).items()
    )
    return Expected(recipe=recipe, settings=decisive, seeds=len(logs), made_by=made_by, held_out_answer=points)


def find_expected(recipe: str, settings: Mapping[str, Any], folder: Path = SHIPPED) -> Expected | None:
    """The curve of a recipe under a run's settings; None without one, or if the settings are not those of a local run.

    Raises:
        FileFormatError: a file of the folder is not a curve.
    """
    try:
        wanted = DecisiveSettings.model_validate(settings)
    except ValidationError:
        return None
    for path in sorted(folder.glob("*.json")):
        with validating(f"{path} is not an expected curve", "Make it again with python -m research.ablate."):
            curve = Expected.model_validate_json(read_text(path, "a curve that python -m research.ablate wrote"))
        if (curve.recipe, curve.settings) == (recipe, wanted):
            return curve
    return None


def compare_with(expected: Expected, log: RunLog) -> str | None:
    """Compare the run with the curve at the latest step that both have, in a sentence; None without such a step."""
    points = {point.step: point for point in expected.held_out_answer}
    shared = [line for line in log.evaluations if line.step in points]
    if not shared:
        return None
    value = shared[-1].held_out["answer"]
    point = points[shared[-1].step]
    side = "below what is" if value < point.lowest else "above what is" if value > point.highest else "as"
    return (
        f"{side} expected: held-out answers {value:.3f} at step {point.step}; earlier runs of this recipe were between "
        f"{point.lowest:.3f} and {point.highest:.3f}"
    )
