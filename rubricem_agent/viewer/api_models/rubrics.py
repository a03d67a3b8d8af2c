"""The rubrics of a question over time."""

from typing import Literal

from rubricem_agent.viewer.api_models.trajectories import RubricView
from rubricem_env.domain.base import Frozen, Text


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


class QuestionPage(Frozen):
    total: int
    matched: int
    page: int
    size: int
    rows: tuple[QuestionRow, ...]


Fate = Literal["born", "kept", "returned", "retired"]


class RubricEvent(Frozen):
    """What became of a rubric in one step."""

    step: int
    group: Text
    fate: Fate
    reason: Text
    """separates_nothing, over_cap; empty unless it was retired."""
    variance: float | None
    """Of its marks in that step."""
    marks: tuple[float, ...]
    """By attempt, where it was marked."""
    mean: float | None


class RubricLife(Frozen):
    rubric: RubricView
    status: Literal["persistent", "active", "retired"]
    prompt_hash: Text
    events: tuple[RubricEvent, ...]
    """In the order of steps."""


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
    """By stage, then in the order of birth."""
