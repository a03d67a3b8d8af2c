"""What the server says of an evaluation and its examples."""

from typing import Literal

from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_records.evaluations.logs import VerdictRecord
from rubricem_records.evaluations.published_scores import PublishedTable
from rubricem_records.evaluations.scores import JudgeAgreement, JudgeScores
from rubricem_records.evaluations.statistics import RunComparison
from rubricem_viewer.api.pages import Page
from rubricem_viewer.api.trajectories import TrajectoryView

ExampleSort = Literal["id", "worst", "best", "disagreement"]


class EvaluationView(Frozen):
    title: Text
    mode: Text
    """With a star where the judge is not the mode's own, and with whose prompts it was asked."""
    agent: Text
    expected: int
    answered: int
    complete: bool = False
    scores: tuple[JudgeScores, ...] = ()
    """The scores by each judge, without those of examples. Empty as long as nothing was scored."""
    agreements: tuple[JudgeAgreement, ...] = ()
    comparisons: tuple[RunComparison, ...] = ()
    """This run against the others of its benchmark and mode under the same root, question by question."""
    published: tuple[PublishedTable, ...] = ()
    """Each with our rows after the others; their names begin with `this run: `."""
    endings: dict[str, int] = Field(default_factory=dict)
    failures: dict[str, int] = Field(default_factory=dict)
    found: dict[str, int] = Field(default_factory=dict)
    """How answers were found."""
    dollars: float = 0.0
    seconds: float = 0.0
    note: Text = ""
    """Why there are no numbers yet, where there are none, or why they say nothing."""


class ExampleRow(Frozen):
    id: Text
    """Opaque; names example and epoch."""
    example: Text
    """As the benchmark calls it."""
    epoch: int
    question: Text
    answer: Text
    """The first 300 characters."""
    scores: tuple[float | None, ...] = ()
    """The scores by each judge, in the order of `EvaluationView.scores`."""
    disagreement: float | None = None
    """Greatest difference between two judges; null with one."""
    failure: Text
    ending: Text
    seconds: float
    dollars: float


ExamplePage = Page[ExampleRow]


class ExampleView(Frozen):
    row: ExampleRow
    given: Text
    """An answer from elsewhere, where there is no trajectory."""
    trajectory: TrajectoryView | None
    """Its stages have no scores; the verdicts of a benchmark's judges are in `replies`."""
    replies: tuple[VerdictRecord, ...]
    """What the judges replied; each reply is truncated to 8,000 characters."""
