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
    GET  /runs/{run}/ablation                     Ablation      (rubricem_agent.viewer.ablation)
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
no body as long as nothing has changed, so that polling is cheap. Any other status than 200 or 304 has the body
`Problem`: a sentence to show. 401 no or a wrong token, 403 not to be changed here, 404 no such thing, 409 a newer
release wrote it or its file is damaged, 422 a parameter out of its range.

**Text.** Every string is data: it may hold script tags, control characters and right-to-left marks. Show it as text,
never as HTML. Addresses (`url`) have been checked: http or https, or empty.

**Offsets** (`start`, `end`) count UTF-16 units, so that they index a JavaScript string. They belong to the text of
the element that they stand on or name.

**Numbers.** Scores lie between 0 and 1; null is "no score", which is never a zero.
"""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field

from rubricem_agent.learn.metrics import ScoredBy
from rubricem_env.domain.base import Frozen, Text

RunKind = Literal["training", "evaluation", "ablation"]
Standing = Literal["running", "finished", "stopped", "stale", "unreadable"]


class Problem(Frozen):
    """Why there is no answer: one sentence for a person."""

    status: int
    message: Text


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
    """The server and what it shows."""

    release: Text = ""
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


Status = Literal["active", "quarantined", "superseded", "removed"]


class BankRow(Frozen):
    """An item in a list."""

    id: int
    status: Status
    reason: Text
    question: Text
    question_key: Text
    step: int
    utility: float | None
    uses: int
    """Groups that it stood before, in this run."""
    similarity: float | None = None
    """In a search: to what was searched for."""


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


class BankPage(Page[BankRow]):
    """A search gives one page of active items, most similar first, as a policy would find them."""

    counts: dict[str, int]
    """By status."""
    embedder: Text
    editable: bool
    note: Text
    """Why it cannot be edited, or as of which step it is shown; empty where there is nothing to say."""


class LessonUse(Frozen):
    """A group of attempts that saw the item."""

    group: Text
    step: int
    question: Text
    question_key: Text
    own_question: bool
    """The repeat of the question that it was learnt from."""
    similarity: float
    scores: StageScores
    before: StageScores
    """Of the same question's latest group before, without the item; null where there is none."""


class BankItemView(Frozen):
    row: BankRow
    rubrics: Text
    takeaways: Text
    score: dict[str, float] | None
    """By the reflection judge: diagnosis, specificity, scope, within, cross and utility."""
    model: Text
    prompt_hash: Text
    history: tuple[BankRow, ...]
    """All items of the question, oldest first."""
    uses: tuple[LessonUse, ...]
    """The latest 100."""
    compared: int
    """The groups that have an earlier group of the same question to compare with."""
    difference: StageScores
    """Their scores less those of the earlier groups; a hint, since the policy learns meanwhile."""
    editable: bool


class BankChange(Frozen):
    """The body of a POST."""

    action: Literal["approve", "quarantine", "remove"]
    reason: Annotated[Text, Field(max_length=500)] = ""
