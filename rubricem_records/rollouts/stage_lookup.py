"""Finds the stage of a character of the policy's text."""

from bisect import bisect_right
from collections.abc import Callable

from rubricem_env.domain.base import Stage, StageSpans


def stage_lookup(spans: StageSpans) -> Callable[[int], Stage]:
    """The stage of a character of the policy's text; beyond the end, the last one; without any text, Research."""
    ordered = sorted((span.start, stage) for stage, span in spans.items())
    starts = [start for start, _ in ordered]

    def stage_at(character: int) -> Stage:
        index = bisect_right(starts, character) - 1
        return ordered[index][1] if index >= 0 else Stage.RESEARCH

    return stage_at
