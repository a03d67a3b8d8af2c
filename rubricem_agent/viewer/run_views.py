"""What is asked of a run's record, answered in the API's types: pages, trajectories, groups, tokens, rubrics."""

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.run_record import RECORD_FOLDER, VOCABULARY_FILE, RolloutEntry
from rubricem_agent.viewer.api_models.groups import GroupView
from rubricem_agent.viewer.api_models.rubrics import QuestionPage, QuestionRow, RubricHistory
from rubricem_agent.viewer.api_models.trajectories import (
    ElementText,
    TokenPage,
    TrajectoryPage,
    TrajectoryView,
)
from rubricem_agent.viewer.elements import element_text
from rubricem_agent.viewer.group_view import Member, view_group
from rubricem_agent.viewer.pieces import cut_trajectory
from rubricem_agent.viewer.problems import NotThereError
from rubricem_agent.viewer.rollout_table import Filter
from rubricem_agent.viewer.rows import make_row, number_or_none
from rubricem_agent.viewer.rubric_history import JudgedGroup, view_history
from rubricem_agent.viewer.run_folder import RunFolder
from rubricem_agent.viewer.trajectory_view import RecordedRollout, view_rollout, view_tokens
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.scaffold.reading import read_trajectory

MAX_GROUPS = 200
"""Of one question's history: the latest."""
MAX_STEPS = 50
"""Listed of one question."""


class RunViews:
    """The record of one run, as of now."""

    def __init__(self, run: RunFolder) -> None:
        run.record.refresh()
        self._run = run
        self._record = run.record

    def trajectories(
        self,
        wanted: Filter,
        *,
        text: str = "",
        question: str = "",
        group: str = "",
        lesson: int = 0,
        page: int,
        size: int,
    ) -> TrajectoryPage:
        """A page of the trajectories that pass; `text` is looked for in questions, the rest must be met exactly."""
        with self._record.lock:
            groups = self._wanted_groups(text, question=question, group=group, lesson=lesson)
            found = self._record.select(wanted._replace(groups=groups))
            shown = found[(page - 1) * size : page * size]
            steps = self._record.table.rows["step"]
            return TrajectoryPage(
                total=len(steps),
                matched=len(found),
                page=page,
                size=size,
                rows=tuple(make_row(self._record, row) for row in shown.tolist()),
                endings=self._record.table.endings,
                steps=(int(steps.min()), int(steps.max())) if len(steps) else None,
            )

    def trajectory(self, rollout_id: str, *, from_element: int = 0) -> TrajectoryView:
        """One trajectory.

        Raises:
            NotThereError: there is none of that id.
            FileFormatError: its line cannot be read.
        """
        with self._record.lock:
            number = self._record.find_rollout(rollout_id)
            group = int(self._record.table.rows["group"][number])
            own = make_row(self._record, number)
            attempts = self._record.table.rows["attempt"][self._record.table.of_group(group)].tolist()
            found = RecordedRollout(
                own,
                self._record.read_rollout(number),
                self._record.read_group(group),
                tuple(f"{own.group}-{attempt}" for attempt in attempts),
            )
        return view_rollout(found, from_element=from_element)

    def element(self, rollout_id: str, index: int, *, offset: int) -> ElementText:
        """A part of a long element.

        Raises:
            NotThereError: there is no such trajectory, or no such element in it.
        """
        pieces = cut_trajectory(read_trajectory(self._entry(rollout_id).rollout.trajectory))
        if index >= len(pieces):
            raise NotThereError(f"the trajectory {rollout_id} has {len(pieces)} elements; there is no number {index}.")
        return element_text(pieces, index, offset=offset)

    def tokens(self, rollout_id: str, *, offset: int, limit: int) -> TokenPage:
        """Tokens of a trajectory.

        Raises:
            NotThereError: there is none of that id.
        """
        return view_tokens(self._entry(rollout_id), self._vocabulary(), offset=offset, limit=limit)

    def group(self, group_id: str, *, sort: str = "attempt") -> GroupView:
        """A group side by side.

        Raises:
            NotThereError: there is none of that id.
        """
        with self._record.lock:
            number = self._record.find_group(group_id)
            entry = self._record.read_group(number)
            rows = self._record.table.of_group(number).tolist()
            rollouts = [(make_row(self._record, row), self._record.read_rollout(row)) for row in rows]
        return view_group(group_id, entry, [Member.of(row, rollout) for row, rollout in rollouts], sort=sort)

    def questions(self, *, text: str, page: int, size: int) -> QuestionPage:
        """A page of the questions that were met, in the order of their first meeting."""
        folded = text.casefold().strip()
        with self._record.lock:
            groups: dict[int, list[int]] = {}
            for number, row in enumerate(self._record.groups):
                groups.setdefault(row.question, []).append(number)
            matched = [one for one in groups if folded in self._record.questions[one].folded]
            shown = matched[(page - 1) * size : page * size]
            return QuestionPage(
                total=len(groups),
                matched=len(matched),
                page=page,
                size=size,
                rows=tuple(self._question_row(one, groups[one]) for one in shown),
            )

    def rubrics(self, question_key: str) -> RubricHistory:
        """The rubrics of a question over time.

        Raises:
            NotThereError: the run has not met it.
        """
        with self._record.lock:
            numbers = self._record.groups_of(self._record.find_question(question_key))[-MAX_GROUPS:]
            return view_history([self._judged(number) for number in numbers])

    def _judged(self, number: int) -> JudgedGroup:
        rows = self._record.table.of_group(number).tolist()
        rollouts = [self._record.read_rollout(row) for row in rows]
        return JudgedGroup(self._record.groups[number].id, self._record.read_group(number), rollouts)

    def _question_row(self, question: int, groups: Sequence[int]) -> QuestionRow:
        told = self._record.questions[question]
        last = self._record.groups[groups[-1]]
        means = self._record.table.means()[self._record.table.of_group(groups[-1])]
        known = means[~np.isnan(means)]
        return QuestionRow(
            key=told.key,
            question=told.text,
            steps=tuple(self._record.groups[number].step for number in groups[-MAX_STEPS:]),
            active=last.active,
            retired=sum(self._record.groups[number].retired for number in groups),
            mean=number_or_none(float(known.mean())) if len(known) else None,
        )

    def _wanted_groups(self, text: str, *, question: str, group: str, lesson: int) -> npt.NDArray[np.bool_] | None:
        """Which groups pass, by number; None where nothing is asked of them."""
        if not (text.strip() or question or group or lesson):
            return None
        folded = text.casefold().strip()
        questions = [folded in one.folded and question in ("", one.key) for one in self._record.questions]
        return np.array(
            [
                questions[row.question]
                and group in ("", row.id)
                and (not lesson or any(shown.item == lesson for shown in row.lessons))
                for row in self._record.groups
            ],
            dtype=bool,
        )

    def _entry(self, rollout_id: str) -> RolloutEntry:
        with self._record.lock:
            return self._record.read_rollout(self._record.find_rollout(rollout_id))

    def _vocabulary(self) -> Sequence[str]:
        """What each token says; empty where that was not recorded."""
        path = self._run.folder / RECORD_FOLDER / VOCABULARY_FILE
        try:
            texts = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as cause:
            raise FileFormatError(f"{path} cannot be read: {cause}. Remove it to see token numbers instead.") from cause
        return [str(text) for text in texts] if isinstance(texts, list) else ()
