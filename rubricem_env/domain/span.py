"""Spans of text, and the spans of each stage."""

from collections.abc import Mapping
from typing import NamedTuple

from rubricem_env.domain.stage import STAGES, Stage


class Span(NamedTuple):
    """Characters [start, end) of a text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """What the span covers."""
        return text[self.start : self.end]


class StageSpans(NamedTuple):
    """Where each stage lies in the policy's text: a partition, every character in exactly one span.

    A stage that never happened has no spans. Spans of one stage are in order and never touch.
    """

    plan: tuple[Span, ...] = ()
    research: tuple[Span, ...] = ()
    review: tuple[Span, ...] = ()
    answer: tuple[Span, ...] = ()

    def of(self, stage: Stage) -> tuple[Span, ...]:
        return self[stage.position]

    def text(self, stage: Stage, policy_text: str) -> str:
        """The text of one stage, its spans joined."""
        return "".join(span.of(policy_text) for span in self.of(stage))

    def as_mapping(self) -> Mapping[Stage, tuple[Span, ...]]:
        return {stage: self.of(stage) for stage in STAGES}
