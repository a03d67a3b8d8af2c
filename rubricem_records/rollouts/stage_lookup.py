"""Finds the stage of a character of the policy's text."""

from bisect import bisect_right
from collections.abc import Callable

from rubricem_env.domain.base import Stage, StageSpans


def stage_lookup(spans: StageSpans, working: str = Stage.RESEARCH) -> Callable[[int], str]:
    """The stage of a character of the policy's text; beyond the end, the last one; without any text, `working`."""
    ordered = sorted((span.start, stage) for stage, span in spans.items())
    starts = [start for start, _ in ordered]

    def stage_at(character: int) -> str:
        index = bisect_right(starts, character) - 1
        return ordered[index][1] if index >= 0 else working

    return stage_at
