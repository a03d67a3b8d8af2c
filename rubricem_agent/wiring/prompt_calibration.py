"""Compares our own judge prompts with the official ones: the same answers, judged twice by one judge."""

from operator import eq
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rubricem_agent.evals.runner import Listener
from rubricem_agent.evals.scoring import agree, read_labels
from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import PlannedEvaluation, plan_run
from rubricem_agent.wiring.evals import run_evaluation
from rubricem_agent.wiring.stored_runs import read_logs
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.inputs import read_text
from rubricem_records.evaluations.manifest import MANIFEST_FILE, read_manifest
from rubricem_records.evaluations.statistics import (
    MeanInterval,
    RunComparison,
    cohens_kappa,
    kappa_interval,
    paired_bootstrap,
)
from rubricem_records.files.atomic_files import writing
from rubricem_records.files.journal import NO_ROOM

WORDINGS = ("own", "official")


class PromptCalibration(NamedTuple):
    """Two runs that judge the same answers."""

    own: PlannedEvaluation
    """Judges with our own prompts."""
    official: PlannedEvaluation
    """Judges with the official prompts."""


class WordingAgreement(Frozen):
    """One judge, asked in two wordings about the same answers of one benchmark."""

    benchmark: Text
    mode: Text
    judge: Text
    answers: int
    """Answers that were graded in both wordings."""
    missing: int
    """Answers without a grade in one of them: outages, or replies without a verdict."""
    verdicts: int
    """Questions that got a readable reply in both."""
    same: float
    """The share of equal verdicts."""
    kappa: float
    interval: MeanInterval
    """The interval of kappa; answers are resampled."""
    scores: RunComparison
    """The difference of the scores: own minus official."""


def plan_calibration(
    config: EvalConfig, run: Path, *, out: Path, prompts: str, limit: int | None = None
) -> PromptCalibration:
    """The two runs that judge the first `limit` answers of `run`; `config` has the judge and the limits.

    Raises:
        UsageError: the run has no answer, or its benchmark no judge.
    """
    source = read_manifest(run)
    inputs = source.inputs
    if not source.rules.judge:
        raise UsageError(f"{run} is a run of {source.benchmark} in mode {source.mode}, which asks no judge.")
    answered = {record.id for record in read_logs(run).answers.records if record.is_final}
    ids = [example_id for example_id in inputs.ids if example_id in answered][:limit]
    if not ids:
        raise UsageError(f"{run} has no answers. Finish it with `rubricem eval {source.benchmark} --stage answers`.")
    folder = out / run.resolve().name
    chosen = folder / "ids.txt"
    text = "".join(f"{example_id}\n" for example_id in ids)
    has_begun = (folder / WORDINGS[0] / MANIFEST_FILE).exists()
    known = read_text(chosen, "a file of ids") if has_begun else text
    if known != text:
        raise UsageError(
            f"{folder} holds a calibration on {known.count(chr(10))} answers; refusing to resume with {len(ids)}, "
            "because the numbers would mix both. Give the same --limit and run, or another --out."
        )
    with writing(chosen, NO_ROOM):
        folder.mkdir(parents=True, exist_ok=True)
        chosen.write_text(text, encoding="utf-8")
    given = {
        "benchmark": source.benchmark,
        "mode": source.mode,
        "data": inputs.path,
        "criteria": Path(inputs.criteria) if inputs.criteria else None,
        "references": Path(inputs.references) if inputs.references else None,
        "any_version": inputs.any_version,
        "answers_from": run,
        "ids": chosen,
    }
    own_out, official_out = (folder / name for name in WORDINGS)
    return PromptCalibration(
        own=plan_run(config.model_copy(update={**given, "prompts": "", "out": own_out})),
        official=plan_run(config.model_copy(update={**given, "prompts": prompts, "out": official_out})),
    )


async def compare_prompts(
    calibration: PromptCalibration, listener: Listener = lambda phase, failure: None
) -> WordingAgreement | str:
    """Do what is missing of both runs, and compare; why nothing can be compared, where no answer has both grades.

    The budget is that of both together.
    """
    own, official = calibration
    first = await run_evaluation(own, listener=listener)
    budget = own.config.budget
    if budget is not None:
        # What the first run has cost is no longer there; a budget of nothing is refused by the settings.
        left = max(budget - first.scores.dollars, 1e-9)
        official = official._replace(config=official.config.model_copy(update={"budget": left}))
    second = await run_evaluation(official, listener=listener)
    stopped = first.runner.stopped or second.runner.stopped
    name = first.scores.manifest.judges[0]
    labels = [read_labels(planned.loaded, name, logs=read_logs(planned.config.folder)) for planned in calibration]
    ours, theirs, examples = agree(*labels)
    scores = first.scores.headline.per_example, second.scores.headline.per_example
    both = scores[0].keys() & scores[1].keys()
    if not (ours and both):
        why = [*first.runner.failures, *second.runner.failures, "no verdict could be read"]
        return f"{own.manifest.benchmark}: no answer was graded in both wordings: {stopped or why[0]}"
    rng = np.random.default_rng(own.config.seed)
    return WordingAgreement(
        benchmark=own.manifest.benchmark,
        mode=own.manifest.mode,
        judge=name,
        answers=len(both),
        missing=len(own.manifest.inputs.ids) - len(both),
        verdicts=len(ours),
        same=sum(map(eq, ours, theirs)) / len(ours),
        kappa=cohens_kappa(ours, theirs),
        interval=kappa_interval(ours, theirs, examples, rng=rng),
        scores=paired_bootstrap(*scores, rng=rng, names=WORDINGS),
    )
