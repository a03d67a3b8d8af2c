"""Views of a run's record: pages, trajectories, tokens, groups side by side, and the rubrics of a question over time."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.record import RECORD_FOLDER, VOCABULARY_FILE, GroupEntry, RolloutEntry
from rubricem_agent.viewer.api_runs import StageScores
from rubricem_agent.viewer.api_trajectories import (
    ElementText,
    Fate,
    GroupRollout,
    GroupView,
    QuestionPage,
    QuestionRow,
    RubricEvent,
    RubricHistory,
    RubricLife,
    Separator,
    StepNote,
    TokenPage,
    TrajectoryPage,
    TrajectoryRow,
    TrajectoryView,
)
from rubricem_agent.viewer.records import NotThereError, RolloutFilter, make_row, number_or_none, stage_scores
from rubricem_agent.viewer.runs import RunFolder
from rubricem_agent.viewer.trajectories import (
    MAX_QUESTION,
    cut_trajectory,
    element_text,
    lesson_views,
    rubric_view,
    rubrics_of,
    view_rollout,
    view_tokens,
)
from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.judgement import Rubric
from rubricem_env.judge.rubrics import ActiveRubric, RetiredRubric
from rubricem_env.judge.scoring import fulfillment, mark_variance
from rubricem_env.scaffold.reading import Reading, read_trajectory

OPENING_CHARS, ANSWER_CHARS = 400, 2_000


Member = tuple[TrajectoryRow, RolloutEntry, Reading]
"""One rollout of a group."""


def view_group(group_id: str, group: GroupEntry, members: Sequence[Member], *, sort: str) -> GroupView:
    """The group; `sort` is attempt, mean, or a stage, whose best comes first."""
    ordered = sorted(members, key=_key(sort))
    rubrics = rubrics_of(group)
    separators = sorted(_separators(ordered, rubrics), key=lambda one: -one.spread)
    return GroupView(
        id=group_id,
        step=group.step,
        encounter=group.encounter,
        question=group.question[:MAX_QUESTION],
        question_key=group.query_key,
        judge=group.judge,
        rubrics=tuple(rubric_view(rubric) for rubric in rubrics.values()),
        rollouts=tuple(_rollout(member) for member in ordered),
        separators=tuple(separators),
        lessons=lesson_views(group.lessons),
        proposal_failure=group.proposal_failure,
        refused=group.refused,
    )


def _key(sort: str) -> Callable[[Member], tuple[float, int]]:
    if sort == "attempt":
        return lambda member: (0.0, member[0].attempt)
    stage = None if sort == "mean" else Stage(sort)
    return lambda member: (_best_first(member[0], stage), member[0].attempt)


def _best_first(row: TrajectoryRow, stage: Stage | None) -> float:
    score = row.mean if stage is None else score_of(row.scores, stage)
    return 1.0 if score is None else -score


def score_of(scores: StageScores, stage: Stage) -> float | None:
    """The score of a stage."""
    return (scores.plan, scores.research, scores.review, scores.answer)[stage.position]


def _rollout(member: Member) -> GroupRollout:
    row, entry, reading = member
    plan = reading.stage_text(Stage.PLAN)
    return GroupRollout(
        row=row,
        advantages=stage_scores(entry.advantages or (None,) * 4),
        trained=entry.trained,
        opening=plan[:OPENING_CHARS],
        answer=(reading.answer or "")[:ANSWER_CHARS],
    )


def _separators(members: Sequence[Member], rubrics: Mapping[str, Rubric]) -> Iterator[Separator]:
    """What differs between the attempts; what is the same in all is left out."""
    means = [row.mean for row, _, _ in members]
    for stage in STAGES:
        values = [score_of(row.scores, stage) for row, _, _ in members]
        yield from _differing(values, means, kind="stage", key=stage.value, title=stage.value, stage=stage.value)
    for rubric in rubrics.values():
        marks = [_fulfilled(entry, rubric) for _, entry, _ in members]
        yield from _differing(marks, means, kind="rubric", key=rubric.id, title=rubric.title, stage=rubric.stage.value)
    for name, read in _HABITS.items():
        counts = [float(read(row, reading)) for row, _, reading in members]
        scale = max(counts, default=0.0)
        yield from _differing(counts, means, kind="habit", key=name, title=name, stage="", scale=scale)


def _differing(
    values: Sequence[float | None],
    means: Sequence[float | None],
    *,
    kind: Literal["stage", "rubric", "habit"],
    key: str,
    title: str,
    stage: str,
    scale: float = 1.0,
) -> Iterator[Separator]:
    """The separator of these values, if they differ between the attempts."""
    given = [value for value in values if value is not None]
    spread = float(np.std(given)) / scale if given and scale > 0 else 0.0
    if spread > 0:
        yield Separator(
            kind=kind,
            key=key,
            title=title,
            stage=stage,
            values=tuple(number_or_none(value) for value in values),
            spread=round(spread, 4),
            agreement=_correlation(values, means),
        )


def _correlation(values: Sequence[float | None], means: Sequence[float | None]) -> float | None:
    pairs = [(a, b) for a, b in zip(values, means, strict=True) if a is not None and b is not None]
    if len(pairs) < 2:
        return None
    first, second = np.array(pairs).T
    if np.ptp(first) < 1e-9 or np.ptp(second) < 1e-9:
        return None
    return number_or_none(float(np.corrcoef(first, second)[0, 1]))


def _fulfilled(entry: RolloutEntry, rubric: Rubric) -> float | None:
    found = next((one for one in entry.judged.opinions if one.rubric_id == rubric.id), None)
    return fulfillment(rubric, found.mark) if found is not None else None


def _repeated(_: TrajectoryRow, reading: Reading) -> int:
    calls = [turn.call.identity for turn in reading.turns if turn.call is not None]
    return len(calls) - len(set(calls))


_HABITS: Mapping[str, Callable[[TrajectoryRow, Reading], int]] = {
    "searches": lambda row, _: row.calls,
    "repeated searches": _repeated,
    "words of the answer": lambda _, reading: len((reading.answer or "").split()),
    "citations": lambda _, reading: len(reading.citations.known),
    "unknown citations": lambda _, reading: len(reading.citations.unknown),
    "tokens": lambda row, _: row.tokens,
    "violations": lambda row, _: row.violations,
}


Standing = Literal["persistent", "active", "retired"]


JudgedGroup = tuple[str, GroupEntry, Sequence[RolloutEntry]]
"""A group's id and entry with its rollouts, by attempt."""


def view_history(groups: Sequence[JudgedGroup]) -> RubricHistory:
    """What became of every rubric of one question; the groups are in the order of steps, one at least."""
    rubrics: dict[str, Rubric] = {}
    for _, entry, _ in groups:
        rubrics |= rubrics_of(entry)
    lives = sorted((_life(rubric, groups) for rubric in rubrics.values()), key=_order)
    last = groups[-1][1]
    return RubricHistory(
        key=last.query_key,
        question=last.question[:MAX_QUESTION],
        steps=tuple(
            StepNote(
                step=entry.step,
                group=group_id,
                encounter=entry.encounter,
                refused=entry.refused,
                failure=entry.proposal_failure,
            )
            for group_id, entry, _ in groups
        ),
        rubrics=tuple(lives),
    )


def _order(life: RubricLife) -> tuple[int, int]:
    stages = [stage.value for stage in STAGES]
    return stages.index(life.rubric.stage), life.rubric.step


def _life(rubric: Rubric, groups: Sequence[JudgedGroup]) -> RubricLife:
    events: list[RubricEvent] = []
    status: Standing = "persistent" if rubric.persistent else "active"
    was_active = False
    for group in groups:
        event = _event(rubric, group, was_active=was_active, is_first=not events)
        if event is None:
            continue
        events.append(event)
        was_active = event.fate != "retired"
        if not rubric.persistent:
            status = "active" if was_active else "retired"
    return RubricLife(
        rubric=rubric_view(rubric), status=status, prompt_hash=rubric.provenance.prompt_hash, events=tuple(events)
    )


def _event(rubric: Rubric, group: JudgedGroup, *, was_active: bool, is_first: bool) -> RubricEvent | None:
    """What became of a rubric in one group; None where it was out of use before and after."""
    group_id, entry, rollouts = group
    active = {one.rubric.id: one for one in entry.active}
    retired = {one.last.rubric.id: one for one in entry.retired}
    is_used = rubric.id in active or (rubric.persistent and any(rubric.id == one.id for one in entry.rubrics))
    if not is_used and rubric.id not in retired:
        return None
    gone = retired.get(rubric.id)
    marks = _marks(rubric.id, rollouts)
    return RubricEvent(
        step=entry.step,
        group=group_id,
        fate="retired" if gone else _fate(was_active=was_active, is_first=is_first),
        reason=gone.reason if gone else "",
        variance=_variance(rubric.id, active, gone, marks),
        marks=tuple(marks),
        mean=number_or_none(sum(marks) / len(marks)) if marks else None,
    )


def _fate(*, was_active: bool, is_first: bool) -> Fate:
    if is_first:
        return "born"
    return "kept" if was_active else "returned"


def _variance(
    rubric_id: str, active: Mapping[str, ActiveRubric], gone: RetiredRubric | None, marks: Sequence[float]
) -> float | None:
    known = active.get(rubric_id) or (gone.last if gone else None)
    if known is not None and known.variance is not None:
        return number_or_none(known.variance)
    return number_or_none(mark_variance(marks)) if len(marks) > 1 else None


def _marks(rubric_id: str, rollouts: Sequence[RolloutEntry]) -> list[float]:
    return [
        opinion.mark for rollout in rollouts for opinion in rollout.judged.opinions if opinion.rubric_id == rubric_id
    ]


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
        wanted: RolloutFilter,
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
            entry, group_entry = self._record.read_rollout(number), self._record.read_group(group)
        siblings = tuple(f"{own.group}-{attempt}" for attempt in attempts)
        return view_rollout(own, entry, group_entry, siblings=siblings, from_element=from_element)

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
        members = [(row, one, read_trajectory(one.rollout.trajectory)) for row, one in rollouts]
        return view_group(group_id, entry, members, sort=sort)

    def questions(self, *, text: str, page: int, size: int) -> QuestionPage:
        """A page of the questions that were met, in the order of their first meeting."""
        with self._record.lock:
            has_text = self._record.has_text(text)
            groups: dict[int, list[int]] = {}
            for number, row in enumerate(self._record.groups):
                groups.setdefault(row.question, []).append(number)
            matched = [one for one in groups if has_text[one]]
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
        return self._record.groups[number].id, self._record.read_group(number), rollouts

    def _question_row(self, question: int, groups: Sequence[int]) -> QuestionRow:
        key, text = self._record.questions[question]
        last = self._record.groups[groups[-1]]
        means = self._record.table.means()[self._record.table.of_group(groups[-1])]
        known = means[~np.isnan(means)]
        return QuestionRow(
            key=key,
            question=text,
            steps=tuple(self._record.groups[number].step for number in groups[-MAX_STEPS:]),
            active=last.active,
            retired=sum(self._record.groups[number].retired for number in groups),
            mean=number_or_none(float(known.mean())) if len(known) else None,
        )

    def _wanted_groups(self, text: str, *, question: str, group: str, lesson: int) -> npt.NDArray[np.bool_] | None:
        """Which groups pass, by number; None where nothing is asked of them."""
        if not (text.strip() or question or group or lesson):
            return None
        has_text = self._record.has_text(text)
        questions = [
            has and question in ("", key) for has, (key, _) in zip(has_text, self._record.questions, strict=True)
        ]
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
