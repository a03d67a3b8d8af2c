"""The examples of an evaluation: a page of them, and one with its trajectory and what each judge replied."""

import base64
import binascii
from collections.abc import Sequence

from rubricem_agent.evals.run.records import CaseKey, VerdictRecord
from rubricem_agent.viewer.answer_index import AnswerRow
from rubricem_agent.viewer.api_models.evaluation import ExamplePage, ExampleRow, ExampleSort, ExampleView, ReplyView
from rubricem_agent.viewer.api_models.runs import StageScores
from rubricem_agent.viewer.api_models.trajectories import TrajectoryRow, TrajectoryView
from rubricem_agent.viewer.problems import NotThereError
from rubricem_agent.viewer.rows import number_or_none
from rubricem_agent.viewer.run_card import read_scores
from rubricem_agent.viewer.run_folder import RunFolder
from rubricem_agent.viewer.trajectory_view import view_trajectory
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.scaffold.reading import read_trajectory

MAX_REPLY, MAX_GIVEN, MAX_REPLIES = 8_000, 50_000, 500


def view_examples(run: RunFolder, *, number: int, size: int, text: str, sort: ExampleSort) -> ExamplePage:
    """A page of the answers that are there; `text` is looked for in id, question and answer."""
    rows = make_rows(run)
    folded = text.casefold().strip()
    matched = [row for row in rows if folded in f"{row.example}\n{row.question}\n{row.answer}".casefold()]
    matched.sort(key=lambda row: _order(row, sort))
    start = (number - 1) * size
    return ExamplePage(
        total=len(rows), matched=len(matched), page=number, size=size, rows=tuple(matched[start : start + size])
    )


def view_example(run: RunFolder, example_id: str, *, from_element: int = 0) -> ExampleView:
    """One example.

    Raises:
        NotThereError: there is no answer to it.
        FileFormatError: its line cannot be read.
    """
    key = _key(example_id)
    found = run.answers.find(key)
    record = run.answers.answer(found)
    row = next(row for row in make_rows(run) if row.id == example_id)
    return ExampleView(
        row=row,
        given=(record.given or "")[:MAX_GIVEN],
        trajectory=_trajectory(record.trajectory, row, found, from_element=from_element) if record.trajectory else None,
        replies=tuple(_reply(verdict) for verdict in run.answers.verdicts(key)[:MAX_REPLIES]),
    )


def make_rows(run: RunFolder) -> list[ExampleRow]:
    """All answers as rows, with the scores by each judge."""
    scores = read_scores(run)
    judges = [judge.per_example for judge in scores.judges] if scores else []
    return [_row(answer, [one.get(answer.key.id) for one in judges]) for answer in run.answers.rows()]


def _row(answer: AnswerRow, scores: Sequence[float | None]) -> ExampleRow:
    given = [score for score in scores if score is not None]
    return ExampleRow(
        id=_opaque(answer.key),
        example=answer.key.id,
        epoch=answer.key.epoch,
        question=answer.question,
        answer=answer.answer,
        scores=tuple(number_or_none(score) for score in scores),
        disagreement=number_or_none(max(given) - min(given)) if len(given) > 1 else None,
        failure=answer.failure,
        ending=answer.ending,
        seconds=answer.seconds,
        dollars=answer.dollars,
    )


def _order(row: ExampleRow, sort: ExampleSort) -> tuple[float, str, int]:
    first = row.scores[0] if row.scores else None
    if sort == "disagreement":
        rank = -1.0 if row.disagreement is None else row.disagreement
        return -rank, row.example, row.epoch
    if sort == "id" or first is None:
        return (0.0 if sort == "id" else float("inf")), row.example, row.epoch
    return (first if sort == "worst" else -first), row.example, row.epoch


def _opaque(key: CaseKey) -> str:
    """An example's name may hold anything; this can stand in a path."""
    return f"{key.epoch}." + base64.urlsafe_b64encode(key.id.encode("utf-8", "replace")).decode("ascii").rstrip("=")


def _key(example_id: str) -> CaseKey:
    epoch, _, name = example_id.partition(".")
    try:
        padded = name + "=" * (-len(name) % 4)
        return CaseKey(base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8"), int(epoch[:6]))
    except (binascii.Error, ValueError) as cause:
        raise NotThereError(f"this evaluation has no example {example_id[:40]!r}.") from cause


def _trajectory(trajectory: Trajectory, row: ExampleRow, found: AnswerRow, *, from_element: int) -> TrajectoryView:
    reading = read_trajectory(trajectory)
    listed = TrajectoryRow(
        id=row.id,
        step=0,
        group="",
        attempt=row.epoch,
        question=row.question,
        question_key=trajectory.query_key,
        scores=StageScores(answer=row.scores[0] if row.scores else None),
        mean=row.scores[0] if row.scores else None,
        true=StageScores(),
        valid=not row.failure,
        complete=reading.is_complete,
        ending=row.ending,
        calls=sum(turn.call is not None for turn in reading.turns),
        tokens=0,
        violations=len(reading.violations),
        lessons=(),
    )
    view = view_trajectory(reading, listed, from_element=from_element)
    cost = view.cost.model_copy(update={"seconds": found.seconds, "dollars": found.dollars})
    return view.model_copy(update={"failure": row.failure, "cost": cost})


def _reply(verdict: VerdictRecord) -> ReplyView:
    return ReplyView(
        judge=verdict.judge,
        question=verdict.question,
        replies=tuple(reply[:MAX_REPLY] for reply in verdict.replies),
        failure=verdict.failure,
        model=verdict.model,
        dollars=verdict.dollars,
        seconds=verdict.seconds,
    )
