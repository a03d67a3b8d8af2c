"""What the viewer's server says, as types: the contract between the server and the page.

**Way in.** `rubricem view` prints `http://127.0.0.1:PORT/#token=T`. The page takes T out of the fragment, keeps it
in `sessionStorage`, removes it from the address, and sends `Authorization: Bearer T` with every request to `/api/`.
There is no cookie: nothing that another page could make the browser send. Without the token the answer is 401.

**Requests.** All paths below begin with `/api`. `{run}` and all other ids are opaque and safe in a path as they are;
only a question on the bank (`text`) and a filter (`q`) need escaping.

    GET  /runs                                    RunList
    GET  /compare?run=A&run=B[&run=C]             Comparison
    GET  /runs/{run}                              RunDetail
    GET  /runs/{run}/state                        RunCard       poll this one; it is small
    GET  /runs/{run}/curves                       Comparison    (figures alone)
    GET  /runs/{run}/ablation                     Ablation      (rubricem_viewer.ablation)
    GET  /runs/{run}/trajectories                 TrajectoryPage
         ?page=1&size=50&q=&sort=newest&step_from=&step_to=&question=&group=&lesson=&ending=&valid=&stage=answer
         &score_from=&score_to=
    GET  /runs/{run}/trajectories/{id}            TrajectoryView   ?from_element=0
    GET  /runs/{run}/trajectories/{id}/elements/{index}?offset=0   ElementText
    GET  /runs/{run}/trajectories/{id}/tokens?offset=0&limit=2000  TokenPage
    GET  /runs/{run}/groups/{group}               GroupView     ?sort=attempt|mean|plan|research|review|answer
    GET  /runs/{run}/questions?page=1&size=50&q=  QuestionPage
    GET  /runs/{run}/questions/{question}         RubricHistory
    GET  /runs/{run}/bank?page=1&size=50&q=&status=active   BankPage
    GET  /runs/{run}/bank/search?text=&limit=10   BankPage
    GET  /runs/{run}/bank/{item}                  BankItemView
    POST /runs/{run}/bank/{item}                  BankChange -> BankItemView
    GET  /runs/{run}/evaluation                   EvaluationView
    GET  /runs/{run}/evaluation/examples?page=1&size=50&q=&sort=id   ExamplePage
    GET  /runs/{run}/evaluation/examples/{example}   ExampleView

**Answers.** JSON in UTF-8. Each 200 to a GET has an `ETag`; sent back as `If-None-Match` it is answered with 304 and
no body as long as nothing has changed, so that polling is cheap. Any other status than 200 or 304 has a body of
`status` and `message`, a sentence to show. 401 no or a wrong token, 403 not to be changed here, 404 no such thing, 409 a newer
release wrote it or its file is damaged, 422 a parameter out of its range.

**Text.** Every string is data: it may hold script tags, control characters and right-to-left marks. Show it as text,
never as HTML. Addresses (`url`) have been checked: http or https, or empty.

**Offsets** (`start`, `end`) count UTF-16 units, so that they index a JavaScript string. They belong to the text of
the element that they stand on or name.

**Numbers.** Scores lie between 0 and 1; null is "no score", which is never a zero.
"""

from typing import Any, Generic, Literal, TypeVar

from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.judgement import Rubric, RubricScore
from rubricem_env.domain.trajectory import ToolCall
from rubricem_records.evaluation_logs import VerdictRecord
from rubricem_records.evaluation_scores import JudgeAgreement, JudgeScores
from rubricem_records.log_lines import ScoredBy
from rubricem_records.published_scores import PublishedTable
from rubricem_records.run_record import ShownLesson
from rubricem_records.statistics import RunComparison

RunKind = Literal["training", "evaluation", "ablation"]
Standing = Literal["running", "finished", "stopped", "stale", "unreadable"]


class StageScores(Frozen):
    """One number a stage; null where there is none."""

    plan: float | None = None
    research: float | None = None
    review: float | None = None
    answer: float | None = None


class RunCard(Frozen):
    """A run in the list."""

    id: Text
    name: Text
    """Its path under the root."""
    kind: RunKind
    state: Standing
    """running: a line within the last two minutes; stale: no line for longer, and not at its end; stopped: lost, a
    warning ended it."""
    changed: float
    """Unix time of the last change."""
    recipe: Text = ""
    """As the ablation calls it, such as `SS-GRPO + meta-policy`; empty where it is none of the four."""
    title: Text = ""
    """Recipe, or benchmark and agent."""
    step: int = 0
    """The last step; answered examples of an evaluation."""
    steps: int | None = None
    """Of the whole plan."""
    scores: StageScores = StageScores()
    """Held-out quality at the last evaluation; an evaluation has its number under `answer`."""
    scored_by: ScoredBy = "truth"
    scored_at: int | None = None
    """The step of that evaluation."""
    lessons: int = 0
    seconds: float = 0.0
    dollars: float | None = None
    warnings: int = 0
    recorded: int = 0
    """Trajectories that can be looked at."""
    has_bank: bool = False
    problem: Text = ""
    """Why it cannot be read, where its state is `unreadable`."""


class RunList(Frozen):
    """What the server shows."""

    root: Text = ""
    """The folder that is shown."""
    only_run: Text | None = None
    """The id of the run, where the folder is one; the page opens it at once."""
    runs: tuple[RunCard, ...]
    """Newest change first."""


class RunDetail(Frozen):
    card: RunCard
    settings: dict[str, Any]
    """As written in its folder."""
    warnings: tuple[dict[str, int | Text], ...]
    """Each has `step` and `message`."""
    notes: tuple[Text, ...]
    """What is missing and why, such as trajectories that were not recorded."""


class Curve(Frozen):
    """A line: x and y have one entry each for every point."""

    name: Text
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    """A band, where there is one."""
    high: tuple[float, ...] = ()
    dashed: bool = False
    stage: Text = ""
    """The stage that gives the colour, where it belongs to one."""
    run: Text = ""
    """In a comparison: the run it belongs to."""


class Figure(Frozen):
    """A chart."""

    key: Text
    """Stable name, such as `held_out.answer`."""
    section: Text
    """Held-out quality, Judge against truth, The policy, Reflections and cost."""
    title: Text
    unit: Text = ""
    x_name: Text = "step"
    including: tuple[float, ...] = ()
    """Values that are on the axis whatever the curves do."""
    curves: tuple[Curve, ...]
    """Empty: not measured in this run."""


class Comparison(Frozen):
    """Figures of several runs side by side, or of one run."""

    runs: tuple[RunCard, ...] = ()
    policies: tuple[Text, ...] = ()
    """The policy of each run's latest attempt; empty where none was recorded."""
    judges: tuple[Text, ...] = ()
    """The judge of each run's latest attempt; empty where none was recorded."""
    note: Text = ""
    """What the runs cannot be compared by."""
    differs: dict[Text, tuple[Text, ...]] = Field(default_factory=dict)
    """The settings in which they differ: a value for each run, in their order; empty where a run has none."""
    figures: tuple[Figure, ...]
    """One curve for each run; curves name their run."""


RowT = TypeVar("RowT")


class Page(Frozen, Generic[RowT]):
    """A page of a list."""

    total: int
    """In the run."""
    matched: int
    page: int
    """From 1."""
    size: int
    rows: tuple[RowT, ...]


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
    """By the judge."""
    mean: float | None
    """Of the stages that have a score."""
    true: StageScores = StageScores()
    """By truth, where the world knows it."""
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
    call: ToolCall | None = None
    repeated: bool = False
    """The same call stands earlier in this trajectory."""
    status: Text = ""
    """Of a tool's answer: ok, empty, error, blocked, timeout, rate_limited."""
    snippets: tuple[SnippetView, ...] = ()
    citations: tuple[CitationView, ...] = ()


class ElementText(Frozen):
    """A part of a long element."""

    index: int
    offset: int
    text: Text
    next_offset: int | None


class VerdictView(Frozen):
    """A judge's score of this trajectory on one rubric."""

    rubric: Rubric
    rubric_score: RubricScore
    passages: tuple[Passage, ...]
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
    passage: Passage | None


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
    texts: tuple[Text, ...]
    """As written; `#17` where the vocabulary was not recorded."""
    stages: tuple[int, ...]
    """0 to 3, or -1 where the policy did not write."""
    logprobs: tuple[float | None, ...]
    advantages: tuple[float | None, ...]
    """Of the token's stage; null where the policy did not write, or nothing was recorded."""


class Separator(Frozen):
    """Something that tells the attempts of a group apart, with a value for each."""

    kind: Literal["stage", "rubric", "statistic"]
    key: Text
    """The stage, the rubric's id, or the statistic: searches, repeated searches, words of the answer, citations, tokens,
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
    rubrics: tuple[Rubric, ...]
    rollouts: tuple[GroupRollout, ...]
    """In the requested order."""
    separators: tuple[Separator, ...]
    lessons: tuple[ShownLesson, ...]
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
    """Of its scores in that step."""
    scores: tuple[float, ...]
    """By attempt, where it was scored."""
    mean: float | None


class RubricLife(Frozen):
    rubric: Rubric
    status: Literal["persistent", "active", "retired"]
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


class EvaluationView(Frozen):
    title: Text
    mode: Text
    """With a star where the judge is not the mode's own, and with whose prompts it was asked."""
    agent: Text
    expected: int
    answered: int
    complete: bool = False
    scores: tuple[JudgeScores, ...] = ()
    """Without the scores of examples. Empty as long as nothing was scored."""
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
    scores: tuple[float | None, ...] = ()
    """By judge, in the order of `EvaluationView.scores`."""
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
    """Without verdicts on stages; those of a benchmark's judges are in `replies`."""
    replies: tuple[VerdictRecord, ...]
    """What the judges replied; each reply is truncated to 8,000 characters."""
