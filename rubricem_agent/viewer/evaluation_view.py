"""An evaluation as the API tells it: its numbers with intervals, the paper's rows beside them, judges that disagree."""

from collections.abc import Mapping

from rubricem_agent.evals.report.summary import own_rows, summarize
from rubricem_agent.evals.run.manifest import Manifest, read_manifest
from rubricem_agent.evals.scores import JudgeScores, Scores
from rubricem_agent.evals.suite import SUITE
from rubricem_agent.viewer.api_models.evaluation import (
    AgreementView,
    Count,
    EvaluationView,
    PublishedCell,
    PublishedRow,
    PublishedView,
    ScoreRow,
)
from rubricem_agent.viewer.run_card import read_scores
from rubricem_agent.viewer.run_folder import RunFolder


def view_evaluation(run: RunFolder) -> EvaluationView:
    """The numbers as they are stored.

    Raises:
        FileFormatError: the manifest or the scores cannot be read.
    """
    manifest = read_manifest(run.folder)
    scores = read_scores(run)
    rows = run.answers.rows()
    title = SUITE[manifest.benchmark].title if manifest.benchmark in SUITE else manifest.benchmark
    blank = EvaluationView(
        benchmark=manifest.benchmark,
        title=title,
        mode=manifest.label,
        agent=_agent(manifest),
        expected=len(manifest.inputs.ids) * manifest.epochs,
        answered=sum(not row.failure for row in rows),
        seconds=round(sum(row.seconds for row in rows), 1),
        dollars=round(sum(row.dollars for row in rows), 4),
        note="" if scores else "No numbers yet: they are made when the run ends, or by `rubricem eval rescore`.",
    )
    return blank if scores is None else blank.model_copy(update=_numbers(scores))


def _agent(manifest: Manifest) -> str:
    agent = manifest.agent
    return f"{agent.policy}, {agent.style}, reuse {agent.reuse}, {agent.attempts} attempts"


def _numbers(scores: Scores) -> Mapping[str, object]:
    """What the stored scores add."""
    return {
        "answered": scores.answered,
        "complete": scores.is_complete,
        "scores": tuple(_score_row(judge) for judge in scores.judges),
        "agreements": tuple(
            AgreementView(first=pair.first, second=pair.second, n=pair.n, share=pair.share, kappa=pair.kappa)
            for pair in scores.agreements
        ),
        "published": _published(scores) if scores.manifest.benchmark in SUITE else (),
        "endings": _counts(scores.endings),
        "failures": _counts(scores.failures),
        "found": _counts(scores.found),
        "dollars": round(scores.dollars, 4),
        "seconds": round(scores.seconds, 1),
    }


def _score_row(judge: JudgeScores) -> ScoreRow:
    spread = judge.wilson or judge.spread
    return ScoreRow(
        judge=judge.judge,
        metric=judge.headline,
        score=judge.score,
        worst=judge.worst,
        low=spread.low if spread else None,
        high=spread.high if spread else None,
        interval=spread.method if spread else "",
        graded=judge.graded,
        excluded=judge.excluded,
        ungraded=judge.ungraded,
        unreadable=judge.unreadable,
        metrics=judge.metrics,
    )


def _published(scores: Scores) -> tuple[PublishedView, ...]:
    summary = summarize([scores])
    views = []
    for table in summary.published:
        theirs = [
            PublishedRow(
                system=row.system,
                cells=tuple(
                    PublishedCell(column=column, value=value)
                    for column, value in zip(table.columns, row.values, strict=False)
                ),
                flags=row.flags,
                own=False,
            )
            for row in table.rows
        ]
        ours = [
            PublishedRow(
                system=row.system,
                cells=tuple(
                    PublishedCell(column=column, value=_percent(row.scores.get(column))) for column in table.columns
                ),
                flags=(row.note,),
                own=True,
            )
            for row in own_rows(summary, table.columns)
        ]
        views.append(PublishedView(source=table.source, columns=table.columns, rows=(*theirs, *ours)))
    return tuple(views)


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 1)


def _counts(counts: Mapping[str, int]) -> tuple[Count, ...]:
    return tuple(Count(name=name, count=count) for name, count in counts.items())
