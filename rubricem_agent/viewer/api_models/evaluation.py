"""An evaluation: its rows beside the paper's, and each example."""

from typing import Literal

from rubricem_agent.viewer.api_models.trajectories import TrajectoryView
from rubricem_env.domain.base import Frozen, Text

ExampleSort = Literal["id", "worst", "best", "disagreement"]


class ScoreRow(Frozen):
    """One judge's number of this run."""

    judge: Text
    metric: Text
    score: float | None
    worst: float | None
    """If every exclusion counted as the worst case."""
    low: float | None
    high: float | None
    interval: Text
    """How the interval was made."""
    graded: int
    excluded: dict[str, int]
    ungraded: dict[str, int]
    unreadable: int
    metrics: dict[str, float | None]


class PublishedCell(Frozen):
    column: Text
    value: float | None
    """In percent."""


class PublishedRow(Frozen):
    system: Text
    cells: tuple[PublishedCell, ...]
    flags: tuple[Text, ...]
    """In what it is not the same as ours."""
    own: bool
    """Made by this run."""


class PublishedView(Frozen):
    source: Text
    columns: tuple[Text, ...]
    rows: tuple[PublishedRow, ...]


class AgreementView(Frozen):
    first: Text
    second: Text
    n: int
    share: float
    kappa: float


class Count(Frozen):
    name: Text
    count: int


class EvaluationView(Frozen):
    benchmark: Text
    title: Text
    mode: Text
    """With a star where the judge is not the mode's own."""
    agent: Text
    expected: int
    answered: int
    complete: bool = False
    scores: tuple[ScoreRow, ...] = ()
    """Empty as long as nothing was scored."""
    agreements: tuple[AgreementView, ...] = ()
    published: tuple[PublishedView, ...] = ()
    endings: tuple[Count, ...] = ()
    failures: tuple[Count, ...] = ()
    found: tuple[Count, ...] = ()
    """How answers were found."""
    dollars: float = 0.0
    seconds: float = 0.0
    note: Text = ""
    """Why there are no numbers yet, where there are none."""


class ExampleRow(Frozen):
    id: Text
    """Opaque; names example and epoch."""
    example: Text
    """As the benchmark calls it."""
    epoch: int
    question: Text
    answer: Text
    """The first 300 characters."""
    scores: tuple[float | None, ...]
    """By judge, in the order of `EvaluationView.scores`."""
    disagreement: float | None
    """Greatest difference between two judges; null with one."""
    failure: Text
    ending: Text
    seconds: float
    dollars: float


class ExamplePage(Frozen):
    total: int
    matched: int
    page: int
    size: int
    rows: tuple[ExampleRow, ...]


class ReplyView(Frozen):
    """What a judge replied to one question."""

    judge: Text
    question: Text
    replies: tuple[Text, ...]
    """All tries in order; each cut to 8,000 characters."""
    failure: Text
    model: Text
    dollars: float
    seconds: float


class ExampleView(Frozen):
    row: ExampleRow
    given: Text
    """An answer from elsewhere, where there is no trajectory."""
    trajectory: TrajectoryView | None
    """Without verdicts on stages; judges of benchmarks speak in `replies`."""
    replies: tuple[ReplyView, ...]
