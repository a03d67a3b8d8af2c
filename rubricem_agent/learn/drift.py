"""Judge drift: the training judge's scores rise over the steps and the truth does not follow.

Only a world with truth can know this directly; elsewhere a held-out judge takes the truth's place
(`rubricem_env.judge.audit.heldout`). The alarm tells people. It stops nothing, or truth would steer training.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from rubricem_agent.learn.metrics_log import StepLine
from rubricem_env.domain.base import Frozen


class DriftSettings(Frozen):
    """When judge and truth count as parted."""

    window: Annotated[int, Field(ge=1)] = 6
    """Steps averaged for the first level and for the present one. 6 is a whole turn of the curriculum."""
    judge_rise: Annotated[float, Field(ge=0)] = 0.05
    """The judge must have risen by more than this: rubrics that get harder lower its scores, and that is no drift."""
    widening: Annotated[float, Field(ge=0)] = 0.1
    """How far the judge's rise may exceed the truth's."""


class Rise(NamedTuple):
    """How far the mean over all stages has come since the first steps."""

    judge: float
    truth: float


def measure_rise(lines: Sequence[StepLine], window: int) -> Rise | None:
    """Present level less first level of judge and truth; None before there are two windows of steps."""
    pairs = [(_mean(line.judged), _mean(line.true)) for line in lines]
    known = [(judge, truth) for judge, truth in pairs if judge is not None and truth is not None]
    if len(known) < 2 * window:
        return None
    judged, true = zip(*known, strict=True)
    return Rise(*((sum(column[-window:]) - sum(column[:window])) / window for column in (judged, true)))


def find_drift(lines: Sequence[StepLine], settings: DriftSettings) -> str | None:
    """The alarm as a sentence, or None while judge and truth go together."""
    rise = measure_rise(lines, settings.window)
    if rise is None or rise.judge <= settings.judge_rise or rise.judge - rise.truth <= settings.widening:
        return None
    return (
        f"step {lines[-1].step}: the judge gives {rise.judge:+.2f} more than at first and the truth has moved by "
        f"{rise.truth:+.2f}; they may part by {settings.widening:.2f}. The policy may be learning the judge instead of "
        "the task: look at the rubrics of the last steps, or go back to an earlier checkpoint."
    )


def _mean(scores: Mapping[str, float | None]) -> float | None:
    given = [score for score in scores.values() if score is not None]
    return sum(given) / len(given) if given else None
