"""One trajectory of a run as the API tells it, and its tokens."""

from collections.abc import Sequence
from typing import NamedTuple

from rubricem_agent.learn.run_record import GroupEntry, RolloutEntry, ShownLesson
from rubricem_agent.viewer.api_models.trajectories import (
    CostView,
    LessonView,
    TokenPage,
    TrajectoryRow,
    TrajectoryView,
    ViolationView,
)
from rubricem_agent.viewer.elements import ElementMaker, make_bands
from rubricem_agent.viewer.pieces import cut_trajectory
from rubricem_agent.viewer.quotations import Passages
from rubricem_agent.viewer.stage_views import StageViews, rubrics_of
from rubricem_env.scaffold.citations import shown_snippets
from rubricem_env.scaffold.reading import Reading, read_trajectory
from rubricem_env.scaffold.violations import RULES

MAX_TOKENS = 5_000
MAX_VIOLATIONS = 500
MAX_QUESTION = 20_000


class RecordedRollout(NamedTuple):
    """A rollout with everything that is shown beside it."""

    row: TrajectoryRow
    entry: RolloutEntry
    group: GroupEntry
    siblings: tuple[str, ...]


def view_rollout(found: RecordedRollout, *, from_element: int = 0) -> TrajectoryView:
    """A rollout of training."""
    entry, group = found.entry, found.group
    reading = read_trajectory(entry.rollout.trajectory)
    passages = Passages.of(cut_trajectory(reading))
    view = view_trajectory(reading, found.row, from_element=from_element)
    return view.model_copy(
        update={
            "row": found.row.model_copy(update={"question": group.question[:MAX_QUESTION]}),
            "policy": entry.rollout.policy,
            "prompt_hash": entry.rollout.prompt_hash,
            "temperature": entry.rollout.temperature,
            "failure": entry.rollout.failure,
            "judge": group.judge,
            "judge_failure": entry.judged.failure,
            "encounter": group.encounter,
            "trained": entry.trained,
            "lessons": lesson_views(group.lessons),
            "bait": entry.judged.bait,
            "stages": StageViews(entry, reading, rubrics=rubrics_of(group), passages=passages).make(),
            "cost": view.cost.model_copy(
                update={
                    "input_tokens": entry.rollout.usage.input_tokens,
                    "output_tokens": entry.rollout.usage.output_tokens,
                }
            ),
            "num_tokens": entry.tokens.length if entry.tokens else 0,
            "siblings": found.siblings,
        }
    )


def view_trajectory(reading: Reading, row: TrajectoryRow, *, from_element: int = 0) -> TrajectoryView:
    """What a trajectory says by itself, without a judge."""
    pieces = cut_trajectory(reading)
    shown = shown_snippets(reading.trajectory.segments)
    maker = ElementMaker(pieces, cited=(*reading.citations.known, *reading.citations.unknown), shown=shown)
    return TrajectoryView(
        row=row,
        policy="",
        prompt_hash="",
        temperature=None,
        seed=reading.trajectory.seed,
        failure="",
        judge="",
        judge_failure="",
        encounter="",
        trained=None,
        lessons=(),
        bait=(),
        bands=make_bands(pieces),
        elements=maker.page(from_element),
        elements_total=len(pieces),
        stages=(),
        violations=_violations(reading, Passages.of(pieces)),
        unknown_citations=reading.citations.unknown[:MAX_VIOLATIONS],
        cost=CostView(
            calls=sum(turn.call is not None for turn in reading.turns),
            turns=len(reading.turns),
            input_tokens=0,
            output_tokens=0,
            seconds=None,
            dollars=None,
        ),
        num_tokens=0,
        siblings=(),
    )


def lesson_views(lessons: Sequence[ShownLesson]) -> tuple[LessonView, ...]:
    return tuple(LessonView(item=lesson.item, similarity=lesson.similarity) for lesson in lessons)


def view_tokens(entry: RolloutEntry, vocabulary: Sequence[str], *, offset: int, limit: int) -> TokenPage:
    """Tokens from `offset` on, with the advantage of the stage that each belongs to.

    Raises:
        FileFormatError: the recorded tokens are damaged.
    """
    if entry.tokens is None:
        return TokenPage(total=0, offset=0, prompt_length=0, texts=(), stages=(), logprobs=(), advantages=())
    end = offset + min(limit, MAX_TOKENS)
    ids, stages, logprobs = (column[offset:end] for column in entry.tokens.unpack())
    credit = (*(entry.advantages or (None,) * 4), None)
    return TokenPage(
        total=entry.tokens.length,
        offset=offset,
        prompt_length=entry.tokens.prompt_length,
        texts=tuple(vocabulary[one] if 0 <= one < len(vocabulary) else f"#{one}" for one in ids.tolist()),
        stages=tuple(stages.tolist()),
        logprobs=tuple(
            round(value, 3) if stage >= 0 else None
            for value, stage in zip(logprobs.tolist(), stages.tolist(), strict=True)
        ),
        advantages=tuple(credit[stage] if -1 <= stage < 4 else None for stage in stages.tolist()),
    )


def _violations(reading: Reading, passages: Passages) -> tuple[ViolationView, ...]:
    starts = [0]
    for turn in reading.turns:
        starts.append(starts[-1] + len(turn.text))
    return tuple(
        ViolationView(
            code=found.code.value,
            turn=found.turn,
            message=found.message,
            strict=RULES[found.code].strict,
            place=passages.begin(starts[found.turn - 1] + found.start) if 0 < found.turn <= len(starts) else None,
        )
        for found in reading.violations[:MAX_VIOLATIONS]
    )
