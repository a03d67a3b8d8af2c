"""Views of an evaluation: its scores with intervals beside the paper's rows, its examples, and what judges replied."""

import base64
import binascii
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from rubricem_agent.evals.manifest import read_manifest
from rubricem_agent.evals.records import CaseKey
from rubricem_agent.evals.report import compare, name_judges, own_rows, summarize
from rubricem_agent.evals.scores import Scores
from rubricem_agent.evals.statistics import RunComparison
from rubricem_agent.evals.suite import SUITE
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_viewer import api
from rubricem_viewer.api import StageScores
from rubricem_viewer.records import NotThereError, PageFilter, number_or_none
from rubricem_viewer.runs import RunFolder, stored_scores
from rubricem_viewer.trajectories import view_trajectory


def view_evaluation(run: RunFolder, others: Sequence[RunFolder] = ()) -> api.EvaluationView:
    """The numbers as they are stored, and what they are beside those of `others`.

    Raises:
        FileFormatError: the manifest or the scores cannot be read.
    """
    manifest = read_manifest(run.folder)
    scores = stored_scores(run)
    agent, rows = manifest.agent, run.answers.rows()
    title = SUITE[manifest.benchmark].title if manifest.benchmark in SUITE else manifest.benchmark
    blank = api.EvaluationView(
        title=title,
        mode=manifest.label,
        agent=f"{agent.policy}, {agent.style}, reuse {agent.reuse}, {agent.attempts} attempts",
        expected=len(manifest.inputs.ids) * manifest.epochs,
        answered=sum(not row.failure for row in rows),
        seconds=round(sum(row.seconds for row in rows), 1),
        dollars=round(sum(row.dollars for row in rows), 4),
        note="" if scores else "No numbers yet: they are made when the run ends, or by `rubricem eval rescore`.",
    )
    if scores is None:
        return blank
    comparisons = _comparisons(run, scores, others)
    (scores,) = name_judges([scores])
    summary = summarize([scores] if scores.judges and manifest.benchmark in SUITE else [])
    published = (
        table.model_copy(update={"rows": (*table.rows, *own_rows(summary, table.columns))})
        for table in summary.published
    )
    return blank.model_copy(
        update={
            "answered": scores.answered,
            "complete": scores.is_complete,
            "scores": tuple(judge.model_copy(update={"per_example": {}, "texts": {}}) for judge in scores.judges),
            "agreements": scores.agreements,
            "comparisons": comparisons,
            "published": tuple(published),
            "endings": scores.endings,
            "failures": scores.failures,
            "found": scores.found,
            "dollars": round(scores.dollars, 4),
            "seconds": round(scores.seconds, 1),
        }
    )


def _comparisons(run: RunFolder, scores: Scores, others: Sequence[RunFolder]) -> tuple[RunComparison, ...]:
    """Every other run that a judge of this one has scored; a run that cannot be read is left out."""
    found = []
    for other in others:
        with suppress(FileFormatError):
            theirs = None if other.id == run.id else stored_scores(other)
            if theirs is not None:
                first, second = name_judges([scores, theirs])
                gap = compare(first, second, np.random.default_rng(0))
                if isinstance(gap, RunComparison):
                    found.append(gap.model_copy(update={"second": f"{gap.second} ({other.name})"}))
    return tuple(found)


MAX_REPLY, MAX_GIVEN, MAX_REPLIES = 8_000, 50_000, 500


class ExampleFilter(PageFilter):
    """Which answers are wanted; `q` is looked for in id, question and answer."""

    sort: api.ExampleSort = "id"


def view_examples(run: RunFolder, wanted: ExampleFilter) -> api.ExamplePage:
    """A page of the answers that are there."""
    rows = make_rows(run)
    folded = wanted.q.casefold().strip()
    matched = [row for row in rows if folded in f"{row.example}\n{row.question}\n{row.answer}".casefold()]
    matched.sort(key=lambda row: _order(row, wanted.sort))
    return api.ExamplePage(
        total=len(rows), matched=len(matched), page=wanted.page, size=wanted.size, rows=tuple(matched[wanted.rows])
    )


def view_example(run: RunFolder, example_id: str, *, from_element: int = 0) -> api.ExampleView:
    """One example.

    Raises:
        NotThereError: there is no answer to it.
        FileFormatError: its line cannot be read.
    """
    key = _key(example_id)
    record = run.answers.answer(key)
    row = next(row for row in make_rows(run) if row.id == example_id)
    return api.ExampleView(
        row=row,
        given=(record.given or "")[:MAX_GIVEN],
        trajectory=_trajectory(record.trajectory, row, from_element=from_element) if record.trajectory else None,
        replies=tuple(
            verdict.model_copy(update={"replies": tuple(reply[:MAX_REPLY] for reply in verdict.replies)})
            for verdict in run.answers.verdicts(key)[:MAX_REPLIES]
        ),
    )


def make_rows(run: RunFolder) -> list[api.ExampleRow]:
    """All answers as rows, with the scores by each judge."""
    scores = stored_scores(run)
    judges = [judge.per_example for judge in scores.judges] if scores else []
    rows = []
    for answer in run.answers.rows():
        found = [one.get(answer.example) for one in judges]
        given = [score for score in found if score is not None]
        update = {
            "scores": tuple(number_or_none(score) for score in found),
            "disagreement": number_or_none(max(given) - min(given)) if len(given) > 1 else None,
        }
        rows.append(answer.model_copy(update=update))
    return rows


def _order(row: api.ExampleRow, sort: api.ExampleSort) -> tuple[float, str, int]:
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


def _trajectory(trajectory: Trajectory, row: api.ExampleRow, *, from_element: int) -> api.TrajectoryView:
    parsed = parse_trajectory(trajectory)
    listed = api.TrajectoryRow(
        id=row.id,
        attempt=row.epoch,
        question=row.question,
        question_key=trajectory.query_key,
        scores=StageScores(answer=row.scores[0] if row.scores else None),
        mean=row.scores[0] if row.scores else None,
        valid=not row.failure,
        ending=row.ending,
        calls=sum(turn.call is not None for turn in parsed.turns),
        violations=len(parsed.violations),
    )
    view = view_trajectory(parsed, listed, from_element=from_element)
    return view.model_copy(update={"failure": row.failure, "seconds": row.seconds, "dollars": row.dollars})
