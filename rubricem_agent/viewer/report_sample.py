"""A sample of a training run, of a size that does not grow with the run: questions, groups, attempts, lessons.

Chosen are the questions with the longest way between their first and their last group: what changed is seen there. An
attempt that would make the file too large is left out.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rubricem_agent.memory.item import ItemStatus
from rubricem_agent.viewer.api_models.groups import GroupView
from rubricem_agent.viewer.api_models.rubrics import QuestionRow
from rubricem_agent.viewer.api_models.trajectories import TrajectoryPage, TrajectoryRow
from rubricem_agent.viewer.bank_listing import BankListing
from rubricem_agent.viewer.bank_view import BankViews, ShownBank
from rubricem_agent.viewer.run_folder import RunFolder
from rubricem_agent.viewer.run_views import RunViews
from rubricem_env.domain.base import Frozen

QUESTIONS, LESSONS = 8, 40
TOKEN_VIEWS, TOKENS = 8, 2_000
"""How many attempts are shown as tokens too, and how many tokens of each."""
LARGEST, ROOM = 300_000, 4_000_000
"""Characters of one attempt as JSON, and of all together."""

Answers = dict[str, Frozen]
"""By path, as the contract in `api_models` names them."""


class Room(NamedTuple):
    """What is still free."""

    left: int

    def takes(self, answer: Frozen) -> "Room | None":
        """The room after an answer; None where it does not fit."""
        size = len(answer.model_dump_json())
        return Room(self.left - size) if size <= min(LARGEST, self.left) else None


def sample_record(run: RunFolder) -> Answers:
    """Questions, rubrics, groups and attempts of a run; nothing where nothing was recorded."""
    views = RunViews(run)
    if not run.record.groups:
        return {}
    page = views.questions(text="", page=1, size=200)
    chosen = sorted(page.rows, key=way_of, reverse=True)[:QUESTIONS]
    base = f"/runs/{run.id}"
    answers: Answers = {f"{base}/questions": page.model_copy(update={"rows": tuple(chosen)})}
    groups: list[GroupView] = []
    for question in chosen:
        history = views.rubrics(question.key)
        answers[f"{base}/questions/{question.key}"] = history
        groups += [views.group(one) for one in dict.fromkeys((history.steps[0].group, history.steps[-1].group))]
    answers |= {f"{base}/groups/{group.id}": group for group in groups}
    rows: list[TrajectoryRow] = []
    for row, found in _attempts(views, groups):
        rows.append(row)
        answers |= {f"{base}/trajectories/{row.id}{path}": answer for path, answer in found.items()}
    answers[f"{base}/trajectories"] = _page(rows, total=len(run.record.table))
    return answers


def way_of(question: QuestionRow) -> int:
    """Steps between its first and its last time."""
    return question.steps[-1] - question.steps[0]


def sample_bank(run: RunFolder) -> Answers:
    """The newest active lessons of a run; nothing where it has no bank."""
    bank = run.bank.open()
    if bank is None:
        return {}
    views = BankViews(ShownBank(BankListing(bank), False, f"As of step {run.bank.step}."), run.record)
    page = views.page(number=1, size=LESSONS, text="", status=ItemStatus.ACTIVE)
    base = f"/runs/{run.id}/bank"
    return {base: page, **{f"{base}/{row.id}": views.item(row.id) for row in page.rows}}


def _attempts(views: RunViews, groups: list[GroupView]) -> Iterator[tuple[TrajectoryRow, Answers]]:
    """The attempts that fit, each with what its page asks for."""
    room = Room(ROOM)
    shown = 0
    for group in groups:
        for rollout in group.rollouts:
            view = views.trajectory(rollout.row.id)
            after = room.takes(view)
            if after is None:
                continue
            room, shown = after, shown + 1
            found: Answers = {"": view}
            if shown <= TOKEN_VIEWS:
                found["/tokens"] = views.tokens(rollout.row.id, offset=0, limit=TOKENS)
            yield rollout.row, found


def _page(rows: list[TrajectoryRow], *, total: int) -> TrajectoryPage:
    return TrajectoryPage(
        total=total, matched=len(rows), page=1, size=max(1, len(rows)), rows=tuple(rows), endings=(), steps=None
    )
