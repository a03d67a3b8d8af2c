"""Lists the examples of an evaluation, and shows one with what judges replied."""

import base64
import binascii

from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_records.evaluations.logs import CaseKey
from rubricem_viewer.api.evaluations import ExamplePage, ExampleRow, ExampleSort, ExampleView
from rubricem_viewer.api.trajectories import TrajectoryRow, TrajectoryView
from rubricem_viewer.filters import PageFilter
from rubricem_viewer.refusals import NotThereError
from rubricem_viewer.run_folder import RunFolder, stored_scores
from rubricem_viewer.shown_numbers import last_score, no_scores, number_or_none
from rubricem_viewer.trajectory_view import view_trajectory

MAX_REPLY = 8_000
MAX_GIVEN = 50_000
MAX_REPLIES = 500


class ExampleFilter(PageFilter):
    """Which answers are wanted; `q` is looked for in id, question and answer."""

    sort: ExampleSort = "id"


def view_examples(run: RunFolder, wanted: ExampleFilter) -> ExamplePage:
    """A page of the answers that are there."""
    rows = make_rows(run)
    folded = wanted.q.casefold().strip()
    matched = [row for row in rows if folded in f"{row.example}\n{row.question}\n{row.answer}".casefold()]
    matched.sort(key=lambda row: _order(row, wanted.sort))
    return ExamplePage(
        total=len(rows), matched=len(matched), page=wanted.page, size=wanted.size, rows=tuple(matched[wanted.rows])
    )


def view_example(run: RunFolder, example_id: str, *, from_element: int = 0) -> ExampleView:
    """One example.

    Raises:
        NotThereError: there is no answer to it.
        FileFormatError: its line cannot be read.
    """
    key = _key(example_id)
    record = run.answers.answer(key)
    row = next(row for row in make_rows(run) if row.id == example_id)
    return ExampleView(
        row=row,
        given=(record.given or "")[:MAX_GIVEN],
        trajectory=_trajectory(record.trajectory, row, from_element=from_element) if record.trajectory else None,
        replies=tuple(
            verdict.model_copy(update={"replies": tuple(reply[:MAX_REPLY] for reply in verdict.replies)})
            for verdict in run.answers.verdicts(key)[:MAX_REPLIES]
        ),
    )


def make_rows(run: RunFolder) -> list[ExampleRow]:
    """All answers as rows, with the scores by each judge."""
    scores = stored_scores(run)
    judges = [judge.per_example for judge in scores.judges] if scores else []
    rows = []
    for answer in run.answers.rows():
        by_judge = [scores_of.get(answer.example) for scores_of in judges]
        given = [score for score in by_judge if score is not None]
        update = {
            "scores": tuple(number_or_none(score) for score in by_judge),
            "disagreement": number_or_none(max(given) - min(given)) if len(given) > 1 else None,
        }
        rows.append(answer.model_copy(update=update))
    return rows


def _order(row: ExampleRow, sort: ExampleSort) -> tuple[float, str, int]:
    first = row.scores[0] if row.scores else None
    value, sign = {"id": (0.0, 1), "worst": (first, 1), "best": (first, -1), "disagreement": (row.disagreement, -1)}[
        sort
    ]
    return (float("inf") if value is None else sign * value), row.example, row.epoch


def _key(example_id: str) -> CaseKey:
    epoch, _, name = example_id.partition(".")
    try:
        padded = name + "=" * (-len(name) % 4)
        return CaseKey(base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8"), int(epoch[:6]))
    except (binascii.Error, ValueError) as cause:
        raise NotThereError(f"this evaluation has no example {example_id[:40]!r}.") from cause


def _trajectory(trajectory: Trajectory, row: ExampleRow, *, from_element: int) -> TrajectoryView:
    parsed = parse_trajectory(trajectory)
    listed = TrajectoryRow(
        id=row.id,
        attempt=row.epoch,
        question=row.question,
        question_key=trajectory.query_key,
        scores=last_score(parsed.stages, row.scores[0] if row.scores else None),
        true=no_scores(parsed.stages),
        mean=row.scores[0] if row.scores else None,
        valid=not row.failure,
        ending=row.ending,
        calls=sum(turn.call is not None for turn in parsed.turns),
        violations=len(parsed.violations),
    )
    view = view_trajectory(parsed, listed, from_element=from_element)
    return view.model_copy(update={"failure": row.failure, "seconds": row.seconds, "dollars": row.dollars})
