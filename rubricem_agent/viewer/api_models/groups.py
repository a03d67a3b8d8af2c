"""A group side by side: all attempts at one question in one step, and what tells them apart."""

from typing import Literal

from rubricem_agent.viewer.api_models.runs import StageScores
from rubricem_agent.viewer.api_models.trajectories import LessonView, RubricView, TrajectoryRow
from rubricem_env.domain.base import Frozen, Text


class Separator(Frozen):
    """Something that tells the attempts of a group apart, with a value for each."""

    kind: Literal["stage", "rubric", "habit"]
    key: Text
    """The stage, the rubric's id, or the habit: searches, repeated searches, words of the answer, citations, tokens,
    violations."""
    title: Text
    stage: Text
    values: tuple[float | None, ...]
    """In the order of the rollouts."""
    spread: float
    """Standard deviation, as a share of the range of such values; the strongest comes first."""
    agreement: float | None
    """Correlation with the mean score, -1 to 1; null where either is flat."""


class GroupRollout(Frozen):
    row: TrajectoryRow
    advantages: StageScores
    trained: bool
    opening: Text
    """The first 400 characters of its plan."""
    answer: Text
    """The first 2,000 characters of its answer."""


class GroupView(Frozen):
    """All attempts at one question in one step."""

    id: Text
    step: int
    encounter: Text
    question: Text
    question_key: Text
    judge: Text
    rubrics: tuple[RubricView, ...]
    rollouts: tuple[GroupRollout, ...]
    """In the order asked for."""
    separators: tuple[Separator, ...]
    lessons: tuple[LessonView, ...]
    proposal_failure: Text
    refused: tuple[Text, ...]
