"""Where the seconds of a simulated step went."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class Doing(StrEnum):
    """What the trainer did, or what it waited for."""

    WAIT = "wait"
    FOR_ROLLOUTS = "waits for rollouts"
    FOR_JUDGE = "waits for the judge"
    FOR_REFLECTIONS = "waits for reflections"
    PHASE_A = "trains on reflections"
    PHASE_B = "trains on rollouts"
    SWAP = "swaps"


class StepRecord:
    """One step's account, kept while it is simulated."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.seconds = dict.fromkeys(Doing, 0.0)
        self.engine_seconds = 0.0
        """Of the step, those in which the engine sampled."""
        self._judged_from: float | None = None
        self._judged_until = 0.0

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    @property
    def judge_span(self) -> float:
        """From the first call to the judge about this step's questions to the last."""
        return 0.0 if self._judged_from is None else self._judged_until - self._judged_from

    def book(self, doing: Doing, seconds: float, *, engine_is_busy: bool) -> None:
        self.seconds[doing] += seconds
        self.engine_seconds += seconds if engine_is_busy else 0.0

    def judge_begins(self, now: float) -> None:
        if self._judged_from is None:
            self._judged_from = now

    def judge_ends(self, now: float) -> None:
        self._judged_until = now


class StepMeans(NamedTuple):
    """An average step of a run."""

    step_seconds: float
    seconds: dict[Doing, float]
    judge_span: float
    judge_exposed: float
    """Of the span, what the trainer waited for."""
    engine_share: float
    """Of the time, that in which the engine sampled."""
    binds: Doing
    """What took the largest part."""


def average(records: Sequence[StepRecord]) -> StepMeans:
    """The mean over some steps, which should be whole turns of the curriculum."""
    number = len(records)
    seconds = {doing: sum(record.seconds[doing] for record in records) / number for doing in Doing}
    total = sum(seconds.values())
    return StepMeans(
        step_seconds=total,
        seconds=seconds,
        judge_span=sum(record.judge_span for record in records) / number,
        judge_exposed=seconds[Doing.FOR_JUDGE],
        engine_share=sum(record.engine_seconds for record in records) / number / total if total else 0.0,
        binds=max(seconds, key=lambda doing: seconds[doing]),
    )
