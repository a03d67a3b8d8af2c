"""A run in the list: its kind, how far it is, its scores, and whether it goes on."""

import time

from pydantic import ValidationError

from rubricem_agent.evals.report.summary import agent_name
from rubricem_agent.evals.run.manifest import SCORES_FILE, read_manifest
from rubricem_agent.evals.scores import Scores
from rubricem_agent.evals.suite import SUITE
from rubricem_agent.learn.metrics_log import StepLine
from rubricem_agent.viewer.ablation_report import load_ablation
from rubricem_agent.viewer.api_models.runs import RunCard, StageScores, Standing
from rubricem_agent.viewer.rows import number_or_none
from rubricem_agent.viewer.run_folder import RunFolder
from rubricem_agent.viewer.training_run import Run
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.trajectory_json import first_problem

PATIENCE = 120.0
"""Seconds without a line after which a run counts as stale, or four of its steps."""
_EMPTY = StageScores()


def make_card(run: RunFolder) -> RunCard:
    """The card of a run; one that cannot be read says why."""
    try:
        if run.kind == "evaluation":
            return _evaluation_card(run)
        return _ablation_card(run) if run.kind == "ablation" else _training_card(run)
    except UsageError as problem:
        return _blank(run, "unreadable").model_copy(update={"problem": str(problem)})


def _training_card(run: RunFolder) -> RunCard:
    run.record.refresh()
    read = run.read()
    last = read.log.steps[-1] if read.log.steps else None
    exam = read.log.exams[-1] if read.log.exams else None
    card = _blank(run, _standing(run, read, last))
    return card.model_copy(
        update={
            "recipe": read.title if read.recipe else "",
            "title": read.title,
            "step": last.step if last else 0,
            "steps": _planned(read),
            "scores": StageScores(**{name: exam.held_out.get(name) for name in StageScores.model_fields})
            if exam
            else _EMPTY,
            "scored_at": exam.step if exam else None,
            "lessons": last.bank if last else 0,
            "seconds": round(sum(sum(line.seconds.values()) for line in read.log.steps), 1),
            "alarms": len(read.log.alarms),
            "recorded": len(run.record.table),
            "has_bank": run.bank.is_there,
        }
    )


def _standing(run: RunFolder, read: Run, last: StepLine | None) -> Standing:
    planned, step = _planned(read), last.step if last else 0
    if planned is not None and step >= planned:
        return "finished"
    patience = max(PATIENCE, 4 * sum(last.seconds.values()) if last else 0.0)
    if time.time() - run.changed < patience:
        return "running"
    alarms = read.log.alarms
    return "stopped" if alarms and alarms[-1].step == step else "stale"


def _planned(read: Run) -> int | None:
    steps = read.settings.get("steps")
    return steps if isinstance(steps, int) else None


def _evaluation_card(run: RunFolder) -> RunCard:
    manifest = read_manifest(run.folder)
    rows = run.answers.rows()
    scores = read_scores(run)
    expected = len(manifest.inputs.ids) * manifest.epochs
    answered = sum(not row.failure for row in rows)
    is_fresh = time.time() - run.changed < PATIENCE
    title = SUITE[manifest.benchmark].title if manifest.benchmark in SUITE else manifest.benchmark
    state: Standing = "finished" if scores is not None and scores.is_complete else "running" if is_fresh else "stale"
    card = _blank(run, state)
    return card.model_copy(
        update={
            "title": f"{title}, {agent_name(scores) if scores else manifest.agent.policy}",
            "step": answered,
            "steps": expected,
            "scores": StageScores(answer=number_or_none(scores.headline.score)) if scores and scores.judges else _EMPTY,
            "seconds": round(sum(row.seconds for row in rows), 1),
            "dollars": round(scores.dollars if scores else sum(row.dollars for row in rows), 4),
            "recorded": len(rows),
        }
    )


def read_scores(run: RunFolder) -> Scores | None:
    """The numbers of an evaluation; None as long as there are none.

    Raises:
        FileFormatError: they cannot be read.
    """
    path = run.folder / SCORES_FILE
    try:
        return Scores.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as cause:
        told = first_problem(cause) if isinstance(cause, ValidationError) else str(cause)
        raise FileFormatError(
            f"{path} cannot be read: {told} Make it anew with `rubricem eval rescore {run.folder}`."
        ) from cause


def _ablation_card(run: RunFolder) -> RunCard:
    ablation = load_ablation(run.folder)
    best = max(ablation.results, key=lambda result: result.answer.mean)
    card = _blank(run, "finished")
    return card.model_copy(
        update={
            "title": f"The ablation: {len(ablation.results)} recipes, {len(ablation.results[0].seeds)} seeds",
            "step": ablation.steps,
            "steps": ablation.steps,
            "scores": StageScores(answer=number_or_none(best.answer.mean)),
            "scored_at": ablation.steps,
            "seconds": round(sum(result.seconds * len(result.seeds) for result in ablation.results), 1),
        }
    )


def _blank(run: RunFolder, state: Standing) -> RunCard:
    """A card that says nothing yet."""
    return RunCard(id=run.id, name=run.name, kind=run.kind, state=state, changed=round(run.changed, 3))
