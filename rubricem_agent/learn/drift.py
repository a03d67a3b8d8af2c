"""Recognises judge drift by the log: the training judge's scores rise and the truth does not follow.

Only a world with truth can measure this; elsewhere the held-out audit (`rubricem_env.judge.trust.audit`) compares two
judges. It stops nothing, or truth would steer training.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.settings import Settings
from rubricem_records.runs.log_lines import StepLine


class DriftSettings(Settings):
    """When judge and truth count as parted."""

    window: Annotated[int, Field(ge=1)] = 6
    """Steps averaged for the first level and for the present one. 6 is one full turn of the curriculum."""
    judge_rise: Annotated[float, Field(ge=0)] = 0.05
    """The judge must have risen by more than this: rubrics that get harder lower its scores, and that is no drift."""
    widening: Annotated[float, Field(ge=0)] = 0.1
    """How far the judge's rise may exceed the truth's."""


def measure_rise(lines: Sequence[StepLine], window: int) -> tuple[float, float] | None:
    """How far judge and truth have risen from their first levels, over all stages; None before two windows of steps."""
    pairs = [(_mean_score(line.judged), _mean_score(line.true)) for line in lines]
    known = [(judge, truth) for judge, truth in pairs if judge is not None and truth is not None]
    if len(known) < 2 * window:
        return None
    judge, truth = ((sum(column[-window:]) - sum(column[:window])) / window for column in zip(*known, strict=True))
    return judge, truth


def find_drift(lines: Sequence[StepLine], settings: DriftSettings) -> str | None:
    """The warning as a sentence; None while judge and truth move together."""
    judge, truth = measure_rise(lines, settings.window) or (0.0, 0.0)
    if judge <= settings.judge_rise or judge - truth <= settings.widening:
        return None
    return (
        f"step {lines[-1].step}: the judge gives {judge:+.2f} more than at first and the truth has moved by "
        f"{truth:+.2f}; they may part by {settings.widening:.2f}. The policy may be learning the judge instead of "
        "the task: look at the rubrics of the last steps, or return to an earlier checkpoint."
    )


def _mean_score(scores: Mapping[str, float | None]) -> float | None:
    given = [score for score in scores.values() if score is not None]
    return sum(given) / len(given) if given else None
