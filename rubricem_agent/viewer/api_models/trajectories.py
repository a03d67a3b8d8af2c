"""Trajectories: a page of them, and one of them."""

from typing import Literal

from rubricem_agent.viewer.api_models.runs import StageScores
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
