"""Types of the API for trajectories, groups, rubrics over time, and evaluations with their examples."""

from typing import Literal

from rubricem_agent.viewer.api_runs import StageScores
from rubricem_env.domain.base import Frozen, Text

Sort = Literal["newest", "oldest", "best", "worst"]
"""Best and worst go by the score of the stage that `stage` names, or by the mean without one."""


class TrajectoryRow(Frozen):
    """A trajectory in a list."""

    id: Text
    step: int
    group: Text
    attempt: int
    """Its place in the group, from 0."""
    question: Text
    question_key: Text
    scores: StageScores
    """By the judge."""
    mean: float | None
    """Of the stages that have a score."""
    true: StageScores
    """By truth, where the world knows it."""
    valid: bool
    """Whether the episode and its judgement count."""
    complete: bool
    """Whether an answer was closed."""
    ending: Text
    calls: int
    tokens: int
    violations: int
    lessons: tuple[int, ...]
    """Items of the bank that stood before the question."""


class TrajectoryPage(Frozen):
    total: int
    """In the run."""
    matched: int
    page: int
    """From 1."""
    size: int
    rows: tuple[TrajectoryRow, ...]
    endings: tuple[Text, ...]
    """All that occur in the run, for a filter."""
    steps: tuple[int, int] | None
    """First and last."""


class Place(Frozen):
    """A passage of an element."""

    element: int
    start: int
    end: int


class CitationView(Frozen):
    """A citation tag in the answer; [start, end) covers the tags, `claim` is what stands between them."""

    ids: tuple[Text, ...]
    claim: Text
    start: int
    end: int
    known: tuple[Text, ...]
    """Those of the ids that a tool has shown in this episode."""


class SnippetView(Frozen):
    id: Text
    title: Text
    url: Text
    text: Text
    cited: bool


class CallView(Frozen):
    tool: Text
    query: Text
    parameters: tuple[tuple[Text, Text], ...]
    repeated: bool
    """The same call stands earlier in this trajectory."""


class ResultView(Frozen):
    """What came back."""

    status: Text
    """ok, empty, error, blocked, timeout, rate_limited; empty string for a notice of the environment."""
    snippets: tuple[SnippetView, ...]


class SectionView(Frozen):
    """A part of a plan or a review."""

    name: Text
    """deep_analysis, rubric, research_plan, rubric_review, writing_plan."""
    text: Text
    start: int
    """In the element's text."""
    end: int


ElementKind = Literal[
    "prompt", "think", "plan", "call", "result", "notice", "state_evaluation", "review", "answer", "text", "cut"
]


class Element(Frozen):
    """A piece of a trajectory, in order. `text` is inside the tags; `cut` is what was taken away after an action."""

    index: int
    kind: ElementKind
    stage: Text
    """plan, research, review, answer; empty for the prompt."""
    turn: int
    """From 1; 0 for the prompt."""
    text: Text
    """At most 20,000 characters; more at /elements/{index}. Of a tool's answer, what stands outside its snippets: there
    /elements/{index} has the observation as the policy read it."""
    length: int
    """Of the whole text, in UTF-16 units."""
    closed: bool = True
    """False where the closing tag is missing."""
    sections: tuple[SectionView, ...] = ()
    call: CallView | None = None
    result: ResultView | None = None
    citations: tuple[CitationView, ...] = ()


class ElementText(Frozen):
    """A part of a long element."""

    index: int
    offset: int
    text: Text
    next_offset: int | None


class Band(Frozen):
    """A stage: a run of elements."""

    stage: Text
    first: int
    """Element."""
    last: int


class RubricView(Frozen):
    id: Text
    stage: Text
    title: Text
    description: Text
    polarity: Literal["positive", "negative"]
    """A flaw is negative: mark 0 is good."""
    weight: float
    persistent: bool
    step: int
    """Of its birth; 0 for one of the data set."""
    model: Text


class VerdictView(Frozen):
    """One rubric's mark of this trajectory."""

    rubric: RubricView
    mark: float
    """0 to 2 as the judge gave it; between whole marks where several judges were averaged."""
    marks: tuple[int, ...]
    """Each judge's own, where there were several."""
    fulfilled: float
    """0 to 1, with a flaw's mark inverted."""
    reason: Text
    places: tuple[Place, ...]
    """Passages that the reason quotes; empty where it quotes none."""


class StageView(Frozen):
    """A stage with all that was said of it."""

    stage: Text
    happened: bool
    score: float | None
    unscored: Text
    """Why there is no score: no_rubric, judge_failed, not_asked; empty where there is one."""
    detail: Text
    true: float | None
    returned: float | None
    """The return G: own score plus what later stages earned it."""
    advantage: float | None
    """null where it was not recorded."""
    verdicts: tuple[VerdictView, ...]


class ViolationView(Frozen):
    code: Text
    turn: int
    message: Text
    strict: bool
    """Whether data generation rejects a trajectory for it."""
    place: Place | None


class LessonView(Frozen):
    """An item of the bank that stood before the question."""

    item: int
    similarity: float


class CostView(Frozen):
    calls: int
    """Of tools."""
    turns: int
    input_tokens: int
    output_tokens: int
    seconds: float | None
    dollars: float | None


class TrajectoryView(Frozen):
    """One trajectory. Elements come in pages of 200: `from_element` asks for later ones."""

    row: TrajectoryRow
    policy: Text
    prompt_hash: Text
    temperature: float | None
    seed: int | None
    failure: Text
    judge: Text
    judge_failure: Text
    encounter: Text
    """new or repeat; empty outside training."""
    trained: bool | None
    lessons: tuple[LessonView, ...]
    bait: tuple[Text, ...]
    """Kinds of text that speak to the judge."""
    bands: tuple[Band, ...]
    elements: tuple[Element, ...]
    elements_total: int
    stages: tuple[StageView, ...]
    violations: tuple[ViolationView, ...]
    unknown_citations: tuple[Text, ...]
    cost: CostView
    num_tokens: int
    """0 where no tokens were recorded."""
    siblings: tuple[Text, ...]
    """The ids of the group, in order."""


class TokenPage(Frozen):
    """Tokens in columns, one entry each."""

    total: int
    offset: int
    prompt_length: int
    texts: tuple[Text, ...]
    """As written; `#17` where the vocabulary was not recorded."""
    stages: tuple[int, ...]
    """0 to 3, or -1 where the policy did not write."""
    logprobs: tuple[float | None, ...]
    advantages: tuple[float | None, ...]
    """Of the token's stage; null where the policy did not write, or nothing was recorded."""


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
