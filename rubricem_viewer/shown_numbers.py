"""Numbers as the API shows them: rounded, and None where there is no number."""

import math
from collections.abc import Sequence

from rubricem_viewer.api.scores import StageScores

DIGITS = 4


def stage_scores(values: Sequence[float | None]) -> StageScores:
    """Four numbers by stage; NaN is no score."""
    plan, research, review, answer = (number_or_none(value) for value in values)
    return StageScores(plan=plan, research=research, review=review, answer=answer)


def number_or_none(value: float | None) -> float | None:
    """Rounded for showing; None for what is no number."""
    return round(value, DIGITS) if value is not None and math.isfinite(value) else None
