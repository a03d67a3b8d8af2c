"""Shows an evaluation: its scores with intervals beside the paper's rows and other runs."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from rubricem_env.domain.errors import FileFormatError
from rubricem_records.evaluations.comparison import compare
from rubricem_records.evaluations.manifest import read_manifest
from rubricem_records.evaluations.names import name_judges
from rubricem_records.evaluations.own_rows import own_rows
from rubricem_records.evaluations.published_scores import published_tables
from rubricem_records.evaluations.scores import Scores
from rubricem_records.evaluations.statistics import RunComparison
from rubricem_viewer.api.evaluations import EvaluationView
from rubricem_viewer.run_folder import RunFolder, stored_scores


def view_evaluation(run: RunFolder, others: Sequence[RunFolder] = ()) -> EvaluationView:
    """The numbers as they are stored, and what they are beside those of `others`.

    Raises:
        FileFormatError: the manifest or the scores cannot be read.
    """
    manifest = read_manifest(run.folder)
    scores = stored_scores(run)
    agent = manifest.agent
    searched = f", searches: {agent.search}" if agent.search else ""
    rows = run.answers.rows()
    blank = EvaluationView(
        title=manifest.title,
        mode=manifest.label,
        agent=f"{agent.policy}, {agent.style}, reuse {agent.reuse}, {agent.attempts} attempts{searched}",
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
    published = (
        table.model_copy(update={"rows": (*table.rows, *own_rows([scores], table.columns))})
        for table in published_tables([manifest.title] if scores.judges else [])
    )
    return blank.model_copy(
        update={
            "answered": scores.answered,
            "complete": scores.is_complete,
            "note": scores.manifest.warning,
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
    comparisons = []
    for other in others:
        with suppress(FileFormatError):
            theirs = None if other.id == run.id else stored_scores(other)
            if theirs is not None:
                first, second = name_judges([scores, theirs])
                gap = compare(first, second, np.random.default_rng(0))
                if isinstance(gap, RunComparison):
                    comparisons.append(gap.model_copy(update={"second": f"{gap.second} ({other.name})"}))
    return tuple(comparisons)
