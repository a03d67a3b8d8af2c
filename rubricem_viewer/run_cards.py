"""The card of a run in the list."""

import time
from collections.abc import Sequence
from typing import Any

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import RubricEMError, boundary
from rubricem_records.evaluations.manifest import judge_model, read_manifest
from rubricem_records.evaluations.names import agent_name
from rubricem_records.evaluations.scores import NO_JUDGE
from rubricem_records.runs.log_lines import StepLine
from rubricem_records.runs.recorded_run import RecordedRun
from rubricem_records.runs.trainer_errors import read_failure
from rubricem_viewer.ablation import load_ablation
from rubricem_viewer.api.runs import RunCard, RunDetail, Standing
from rubricem_viewer.refusals import UnreadableRunError
from rubricem_viewer.run_folder import RunFolder, stored_scores
from rubricem_viewer.shown_numbers import last_score, no_scores, number_or_none

PATIENCE = 120.0
"""Seconds without a line after which a run counts as stale, or four of its steps."""


def make_card(run: RunFolder) -> RunCard:
    """The card of a run; one that cannot be read says why."""
    try:
        with boundary(UnreadableRunError, f"read the run {run.name}"):
            if run.kind == "evaluation":
                return _evaluation_card(run)
            return _ablation_card(run) if run.kind == "ablation" else _training_card(run)
    except RubricEMError as problem:
        return _card(run, "unreadable", scores=no_scores(STAGES), problem=str(problem))


def make_detail(run: RunFolder, card: RunCard, notes: Sequence[str] = ()) -> RunDetail:
    """The card with the settings and the warnings of a training run that can be read."""
    read = run.read() if run.kind == "training" and card.state != "unreadable" else None
    return RunDetail(
        card=card,
        settings=read.settings if read else {},
        warnings=tuple({"step": line.step, "message": line.warning} for line in read.log.warnings) if read else (),
        notes=tuple(notes),
    )


def _training_card(run: RunFolder) -> RunCard:
    run.record.refresh()
    read = run.read()
    last = read.log.steps[-1] if read.log.steps else None
    evaluation = read.log.evaluations[-1] if read.log.evaluations else None
    stages = run.record.stages if run.record.groups else read.stages
    failure = read_failure(run.folder)
    return _card(
        run,
        "stopped" if failure else _standing(run, read, last),
        problem=failure and f"The trainer failed: {failure}",
        recipe=read.title if read.recipe else "",
        title=read.title,
        step=last.step if last else 0,
        steps=_planned(read),
        scores={stage: evaluation.held_out.get(stage) if evaluation else None for stage in stages},
        scored_at=evaluation.step if evaluation else None,
        scored_by=evaluation.by if evaluation else "truth",
        lessons=last.bank if last else 0,
        seconds=round(sum(sum(line.seconds.values()) for line in read.log.steps), 1),
        warnings=len(read.log.warnings),
        recorded=len(run.record.table.rows),
        has_bank=run.bank.is_there,
    )


def _standing(run: RunFolder, read: RecordedRun, last: StepLine | None) -> Standing:
    planned = _planned(read)
    step = last.step if last else 0
    if planned is not None and step >= planned:
        return "finished"
    patience = max(PATIENCE, 4 * sum(last.seconds.values()) if last else 0.0)
    if time.time() - run.changed < patience:
        return "running"
    warnings = read.log.warnings
    return "stopped" if warnings and warnings[-1].step == step else "stale"


def _planned(read: RecordedRun) -> int | None:
    steps = read.settings.get("steps")
    return steps if isinstance(steps, int) else None


def _evaluation_card(run: RunFolder) -> RunCard:
    manifest = read_manifest(run.folder)
    rows = run.answers.rows()
    scores = stored_scores(run)
    expected = len(manifest.inputs.ids) * manifest.epochs
    answered = sum(not row.failure for row in rows)
    is_fresh = time.time() - run.changed < PATIENCE
    judge = judge_model(scores.headline.judge) if scores and scores.judges else NO_JUDGE
    state: Standing = "finished" if scores is not None and scores.is_complete else "running" if is_fresh else "stale"
    return _card(
        run,
        state,
        title=f"{manifest.title}, {agent_name(scores) if scores else manifest.agent.policy}"
        + (f", judged by {judge}" if judge != NO_JUDGE else ""),
        step=answered,
        steps=expected,
        scores=last_score(STAGES, number_or_none(scores.headline.score) if scores and scores.judges else None),
        seconds=round(sum(row.seconds for row in rows), 1),
        dollars=round(scores.dollars if scores else sum(row.dollars for row in rows), 4),
        recorded=len(rows),
    )


def _ablation_card(run: RunFolder) -> RunCard:
    ablation = load_ablation(run.folder)
    best = max(ablation.results, key=lambda result: result.answer.mean)
    return _card(
        run,
        "finished",
        title=f"The ablation: {len(ablation.results)} recipes, {len(ablation.results[0].seeds)} seeds",
        step=ablation.steps,
        steps=ablation.steps,
        scores=last_score(STAGES, number_or_none(best.answer.mean)),
        scored_at=ablation.steps,
        seconds=round(sum(result.seconds * len(result.seeds) for result in ablation.results), 1),
    )


def _card(run: RunFolder, state: Standing, **shown: Any) -> RunCard:
    """The card of a run with the fields that are shown of its kind."""
    return RunCard(id=run.id, name=run.name, kind=run.kind, state=state, changed=round(run.changed, 3), **shown)
