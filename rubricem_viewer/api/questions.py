"""What the server says of a question and its rubrics over time."""

from typing import Literal

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.judgement import Rubric
from rubricem_viewer.api.pages import Page


class QuestionRow(Frozen):
    """A question that was met in training."""

    key: Text
    question: Text
    steps: tuple[int, ...]
    """When it was met."""
    active: int
    """Rubrics in use after the last of them."""
    retired: int
    mean: float | None
    """Mean score of its latest group."""


QuestionPage = Page[QuestionRow]

Fate = Literal["born", "kept", "returned", "retired"]


class RubricEvent(Frozen):
    """What became of a rubric in one step."""

    step: int
    group: Text
    fate: Fate
    reason: Text
    """separates_nothing, over_cap; empty unless it was retired."""
    variance: float | None
    """The variance of its scores in that step."""
    scores: tuple[float, ...]
    """Its scores by attempt, where it was scored."""
    mean: float | None


class RubricLife(Frozen):
    rubric: Rubric
    status: Literal["persistent", "active", "retired"]
    events: tuple[RubricEvent, ...]
    """What became of it, in the order of steps."""


class StepNote(Frozen):
    """A step in which the question was met."""

    step: int
    group: Text
    encounter: Text
    refused: tuple[Text, ...]
    """Proposals that were not let in, with the reasons."""
    failure: Text


class RubricHistory(Frozen):
    key: Text
    question: Text
    steps: tuple[StepNote, ...]
    rubrics: tuple[RubricLife, ...]
    """The rubrics by stage, then in the order of birth."""
