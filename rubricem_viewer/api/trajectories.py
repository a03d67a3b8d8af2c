"""What the server says of a trajectory: its row, its elements, its stages and its tokens."""

from typing import Annotated, Literal

from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.judgement import Rubric, RubricScore
from rubricem_env.domain.trajectory import ToolCall
from rubricem_records.rollouts.run_record import ShownLesson
from rubricem_viewer.api.pages import Page
from rubricem_viewer.api.scores import StageScores

Sort = Literal["newest", "oldest", "best", "worst"]
"""Best and worst go by the score of the stage that `stage` names, or by the mean without one."""


class TrajectoryRow(Frozen):
    """A trajectory in a list."""

    id: Text
    step: int = 0
    group: Text = ""
    attempt: int
    """Its index in the group, from 0."""
    question: Text
    question_key: Text
    scores: StageScores
    """The scores by the judge."""
    mean: float | None
    """The mean of the stages that have a score."""
    true: StageScores
    """The true quality, where the world knows it."""
    valid: bool
    """Whether the episode and its judgement count."""
    ending: Text
    calls: int
    tokens: int = 0
    violations: int
    lessons: tuple[int, ...] = ()
    """Items of the bank that stood before the question."""


class TrajectoryPage(Page[TrajectoryRow]):
    endings: tuple[Text, ...] = ()
    """All that occur in the run, for a filter."""
    steps: tuple[int, int] | None = None
    """First and last."""


class Passage(Frozen):
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


class SectionView(Frozen):
    """A part of a block, such as the goal of a plan."""

    name: Text
    """Its tag, such as `deep_analysis`."""
    text: Text
    start: int
    """The start in the element's text."""
    end: int


ElementKind = Literal[
    "prompt",
    "think",
    "plan",
    "call",
    "result",
    "notice",
    "state_evaluation",
    "review",
    "answer",
    "block",
    "text",
    "cut",
]


class Element(Frozen):
    """A piece of a trajectory, in order. `text` is inside the tags; `cut` is what was taken away after an action."""

    index: int
    kind: ElementKind
    name: Annotated[Text, Field(exclude_if=lambda name: not name)] = ""
    """The tag of a `block`, which is none of the blocks of deep research; absent elsewhere."""
    stage: Text
    """The name of its stage, such as `research`; empty for the prompt."""
    turn: int
    """The number of the turn, from 1; 0 for the prompt."""
    text: Text
    """At most 20,000 characters; more at /elements/{index}. Of a tool's answer, what stands outside its snippets: there
    /elements/{index} has the observation as the policy read it."""
    length: int
    """The length of the whole text, in UTF-16 units."""
    closed: bool = True
    """False where the closing tag is missing."""
    sections: tuple[SectionView, ...] = ()
    call: ToolCall | None = None
    repeated: bool = False
    """The same call stands earlier in this trajectory."""
    status: Text = ""
    """The status of a tool's answer: ok, empty, error, blocked, timeout, rate_limited."""
    snippets: tuple[SnippetView, ...] = ()
    citations: tuple[CitationView, ...] = ()


class ElementText(Frozen):
    """A part of a long element."""

    index: int
    offset: int
    text: Text
    next_offset: int | None


class ScoreView(Frozen):
    """A judge's score of this trajectory on one rubric."""

    rubric: Rubric
    rubric_score: RubricScore
    passages: tuple[Passage, ...]
    """Passages that the reason quotes; empty where it quotes none."""


class StageView(Frozen):
    """A stage with its score, and the scores on its rubrics."""

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
    scores: tuple[ScoreView, ...]


class ViolationView(Frozen):
    code: Text
    turn: int
    message: Text
    strict: bool
    """Whether data generation rejects a trajectory for it."""
    passage: Passage | None


class SeenTurn(Frozen):
    """A turn as the policy read it after a fold, and what it read after it."""

    turn: int
    """Its number, from 1; 0 for what stands before all turns: the plan, and how many turns are left out."""
    text: Text
    observation: Text


class FoldView(Frozen):
    """Where the policy's view was folded.

    From there on, until the next fold, it read the prompt, `seen`, and all later turns whole.
    """

    turn: int
    """The number of turns before it."""
    folded: int
    """How many of those do not stand whole in the view. Those after them do, as they stand in the trajectory."""
    before: int
    """The tokens of the view before it, and after it; both are estimated."""
    after: int
    seen: tuple[SeenTurn, ...]
    """The turns that do not stand whole, as the policy read them. A text has at most 20,000 characters."""
    is_shown: bool
    """False where `seen` was left out for want of room."""


class TrajectoryView(Frozen):
    """One trajectory. Elements come in pages of 200: `from_element` asks for later ones."""

    row: TrajectoryRow
    policy: Text = ""
    prompt_hash: Text = ""
    temperature: float | None = None
    failure: Text = ""
    judge: Text = ""
    judge_failure: Text = ""
    encounter: Text = ""
    """new or repeat; empty outside training."""
    trained: bool | None = None
    lessons: tuple[ShownLesson, ...] = ()
    injections: tuple[Text, ...] = ()
    """Kinds of text that speak to the judge."""
    elements: tuple[Element, ...]
    elements_total: int
    stages: tuple[StageView, ...] = ()
    """Empty without a judge."""
    violations: tuple[ViolationView, ...]
    unknown_citations: tuple[Text, ...]
    claims: tuple[Text, ...]
    """What the record says of its observations and its own texts contradict."""
    turns: int
    folds: Annotated[tuple[FoldView, ...], Field(exclude_if=lambda folds: not folds)] = ()
    """Absent where the policy's view was never folded, and in later pages of elements."""
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float | None = None
    dollars: float | None = None
    num_tokens: int = 0
    """0 where no tokens were recorded."""
    attempts: tuple[Text, ...] = ()
    """The ids of the group's rollouts, in order."""


class TokenPage(Frozen):
    """Tokens in columns, one entry each."""

    total: int
    offset: int
    prompt_length: int
    windows: tuple[int, ...] = ()
    """Where, among the tokens of the attempt, each later window of its context begins: those that begin here."""
    texts: tuple[Text, ...]
    """As written; `#17` where the vocabulary was not recorded."""
    stages: tuple[int, ...]
    """0 to 3, or -1 where the policy did not write."""
    logprobs: tuple[float | None, ...]
    advantages: tuple[float | None, ...]
    """The advantage of the token's stage; null where the policy did not write, or nothing was recorded."""
