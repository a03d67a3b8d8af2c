"""Numbers as the API shows them: rounded, and None where there is no number."""

import math
from collections.abc import Sequence

from rubricem_viewer.api.scores import StageScores

DIGITS = 4


def stage_scores(stages: Sequence[str], values: Sequence[float | None]) -> StageScores:
    """The numbers by stage; NaN is no score."""
    return {stage: number_or_none(value) for stage, value in zip(stages, values, strict=True)}


def no_scores(stages: Sequence[str]) -> StageScores:
    """Stages without a number."""
    return dict.fromkeys(stages)


def last_score(stages: Sequence[str], value: float | None) -> StageScores:
    """The number of the last stage, which is all that is known."""
    return no_scores(stages) | {stages[-1]: value}


def number_or_none(value: float | None) -> float | None:
    """Rounded for showing; None for what is no number."""
    return round(value, DIGITS) if value is not None and math.isfinite(value) else None
