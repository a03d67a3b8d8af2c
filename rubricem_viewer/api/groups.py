"""What the server says of a group of attempts, side by side."""

from typing import Literal

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.judgement import Rubric
from rubricem_records.rollouts.run_record import ShownLesson
from rubricem_viewer.api.scores import StageScores
from rubricem_viewer.api.trajectories import TrajectoryRow


class Separator(Frozen):
    """Something that tells the attempts of a group apart, with a value for each."""

    kind: Literal["stage", "rubric", "statistic"]
    key: Text
    """The stage, the rubric's id, or the name of the statistic, such as `searches`."""
    title: Text
    stage: Text
    values: tuple[float | None, ...]
    """Its value for each rollout, in their order."""
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
    rubrics: tuple[Rubric, ...]
    rollouts: tuple[GroupRollout, ...]
    """The rollouts in the requested order."""
    separators: tuple[Separator, ...]
    lessons: tuple[ShownLesson, ...]
    proposal_failure: Text
    refused: tuple[Text, ...]
