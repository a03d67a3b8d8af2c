"""The sample of a run that goes into its report, whose size does not grow with the run.

The sample takes the questions with the most steps between their first and their last group; an attempt that would
make the file too large is left out.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rubricem_env.domain.base import Frozen
from rubricem_viewer.api.groups import GroupView
from rubricem_viewer.api.trajectories import TrajectoryPage, TrajectoryRow, TrajectoryView
from rubricem_viewer.attempt_view import view_attempt
from rubricem_viewer.bank_views import BankFilter, BankViews
from rubricem_viewer.elements import MAX_ELEMENTS
from rubricem_viewer.evaluation_view import view_evaluation
from rubricem_viewer.example_views import ExampleFilter, view_example, view_examples
from rubricem_viewer.filters import MAX_SIZE, PageFilter
from rubricem_viewer.group_view import view_group
from rubricem_viewer.question_list import list_questions
from rubricem_viewer.rubric_history import view_history
from rubricem_viewer.run_folder import RunFolder
from rubricem_viewer.token_page import list_tokens

QUESTIONS = 8
LESSONS = 40

TOKEN_VIEWS = 8
"""How many attempts are shown as tokens too."""
TOKENS = 2_000
"""How many tokens of each are shown."""

LARGEST = 300_000
"""The most characters of one attempt as JSON."""
MAX_PAGES = 6
"""How many pages of its elements a long attempt has at most."""
ROOM = 4_000_000
"""The most characters of all attempts together, and as many for what of long ones is not in their first answer."""

RowT = TypeVar("RowT", bound=Frozen)

ViewT = TypeVar("ViewT", bound=Frozen)

Answers = dict[str, Frozen]
"""By path, as the contract in `rubricem_viewer.api` names them."""


def fitting(views: Iterable[tuple[RowT, ViewT]]) -> Iterator[tuple[RowT, ViewT]]:
    """The views for which there is room, with their rows; what is too long is left out."""
    room = ROOM
    for row, view in views:
        size = len(view.model_dump_json())
        if size <= min(LARGEST, room):
            room -= size
            yield row, view


def sample_record(run: RunFolder) -> Answers:
    """Questions, rubrics, groups and attempts of a run; nothing where nothing was recorded."""
    run.record.refresh()
    if not run.record.groups:
        return {}
    page = list_questions(run, PageFilter(size=MAX_SIZE))
    chosen = sorted(page.rows, key=lambda question: question.steps[-1] - question.steps[0], reverse=True)[:QUESTIONS]
    base = f"/runs/{run.id}"
    answers: Answers = {f"{base}/questions": page.model_copy(update={"rows": tuple(chosen)})}
    groups: list[GroupView] = []
    for question in chosen:
        history = view_history(run, question.key)
        answers[f"{base}/questions/{question.key}"] = history
        first_and_last = dict.fromkeys((history.steps[0].group, history.steps[-1].group))
        groups += [view_group(run, group_id) for group_id in first_and_last]
    answers |= {f"{base}/groups/{group.id}": group for group in groups}
    rows: list[TrajectoryRow] = []
    room = ROOM
    attempts = (rollout.row for group in groups for rollout in group.rollouts)
    for row, view in fitting((row, _without_long_views(view_attempt(run, row.id))) for row in attempts):
        answers[f"{base}/trajectories/{row.id}"] = view
        later = _later_pages(run, row.id, view.elements_total)
        size = sum(len(page.model_dump_json()) for page in later.values())
        if size <= room:
            room -= size
            answers |= later
        if len(rows) < TOKEN_VIEWS:
            answers[f"{base}/trajectories/{row.id}/tokens"] = list_tokens(run, row.id, offset=0, limit=TOKENS)
        rows.append(row)
    answers[f"{base}/trajectories"] = TrajectoryPage(
        total=len(run.record.table.rows), matched=len(rows), page=1, size=max(1, len(rows)), rows=tuple(rows)
    )
    return answers


def _later_pages(run: RunFolder, rollout_id: str, total: int) -> Answers:
    """The elements of a long attempt that are not in its first answer."""
    return {
        f"/runs/{run.id}/trajectories/{rollout_id}?from_element={first}": view_attempt(
            run, rollout_id, from_element=first
        )
        for first in range(MAX_ELEMENTS, min(total, MAX_PAGES * MAX_ELEMENTS), MAX_ELEMENTS)
    }


def _without_long_views(view: TrajectoryView) -> TrajectoryView:
    """The attempt, without what the policy saw of it where that would leave no room for the attempt itself."""
    if sum(len(fold.model_dump_json()) for fold in view.folds) <= LARGEST // 2:
        return view
    folds = (fold.model_copy(update={"seen": (), "is_shown": False}) for fold in view.folds)
    return view.model_copy(update={"folds": tuple(folds)})


def sample_bank(run: RunFolder) -> Answers:
    """The newest active lessons of a run; nothing where it has no bank."""
    bank = run.bank.open()
    if bank is None:
        return {}
    views = BankViews(bank, run.record, run.bank)
    page = views.page(BankFilter(size=LESSONS, status="active"))
    base = f"/runs/{run.id}/bank"
    return {base: page, **{f"{base}/{row.id}": views.item(row.id) for row in page.rows}}


EXAMPLES = 40


def sample_evaluation(run: RunFolder) -> Answers:
    """The numbers, and the examples on which judges differ most; what is too long is left out."""
    base = f"/runs/{run.id}/evaluation"
    page = view_examples(run, ExampleFilter(size=EXAMPLES, sort="disagreement"))
    views = list(fitting((row, view_example(run, row.id)) for row in page.rows))
    listed = page.model_copy(update={"rows": tuple(row for row, _ in views)})
    examples: Answers = {f"{base}/examples/{row.id}": view for row, view in views}
    return {base: view_evaluation(run), f"{base}/examples": listed, **examples}
