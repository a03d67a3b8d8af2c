"""What a local run writes down: scores and warnings in its log, and its groups, rollouts and bank for the viewer."""

import sys
from typing import Any

import numpy as np

from rubricem_agent.learn.credit import Credit
from rubricem_agent.learn.curriculum import QueryBatch
from rubricem_agent.learn.held_out import answer_held_out, mean_judged, mean_quality, record_evaluation
from rubricem_agent.learn.metrics import METRICS_FILE, append_line, read_log
from rubricem_agent.learn.monitor import find_collapse, find_divergence, find_drift
from rubricem_agent.learn.record import record_group
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import RubricEMError

from .settings import LocalConfig
from .setup import JudgedStep, Parts


def begin_record(parts: Parts, step: int) -> None:
    """Resume the record after `step`, the last one that is not repeated."""
    recorder = parts.recorder
    if recorder is None:
        return
    recorder.begin(step, embedder=parts.bank.embedder_name)
    tokenizer = parts.policy.tokenizer
    recorder.record_vocabulary(lambda: [tokenizer.decode([token_id]) for token_id in range(tokenizer.size)])


def record_step(parts: Parts, batch: QueryBatch, judged: JudgedStep, credit: Credit) -> None:
    """Record a step after its credit was assigned; the rows of `credit` follow the rollouts, group by group.

    Raises:
        UsageError: the disk refuses.
    """
    if parts.recorder is None:
        return
    entries = []
    for index, (rollouts, judgement) in enumerate(zip(judged.groups, judged.judgements, strict=True)):
        row = index * len(rollouts)
        recorded = record_group(
            judgement,
            rollouts,
            credit,
            rubrics=parts.judge.buffer.rubrics(judgement.query_key),
            encounter=batch.encounter,
            question=parts.train[judgement.query_key].question,
            shown=judged.shown.get(judgement.query_key, ()),
            true=judged.true[row : row + len(rollouts)],
            place=index,
            first_row=row,
        )
        entries.append(recorded)
    parts.recorder.record_step(entries)
    parts.recorder.record_lessons(parts.bank.contents(since=parts.recorder.bank_revision), step=batch.step)


async def evaluate_step(parts: Parts, step: int) -> None:
    """Evaluate the policy of a step on the held-out questions, and write the scores into the run's log."""
    if not parts.held_out:
        return
    config = parts.config
    readings = await answer_held_out(
        parts.policy,
        parts.held_out,
        prompt=parts.prompt,
        toolbox=parts.toolbox,
        limits=config.limits,
        max_turn_tokens=config.max_turn_tokens,
        seed=config.seed,
    )
    log, judge = config.out / METRICS_FILE, parts.judge
    if parts.truth:
        scores = mean_quality([parts.truth[query.key] for query in parts.held_out], readings)
        record_evaluation(log, step, scores, readings)
    else:
        scores = await mean_judged(judge.judge, parts.held_out, readings, settings=judge.settings, step=step)
        record_evaluation(log, step, scores, readings, by="judge")


def true_scores(judged: JudgedStep) -> dict[str, float]:
    """The mean true quality of the rollouts; nothing without truth."""
    if not judged.true:
        return {}
    means = np.mean(judged.true, axis=0).tolist()
    return {stage.value: round(value, 4) for stage, value in zip(STAGES, means, strict=True)}


def judged_scores(judged: JudgedStep) -> dict[str, float | None]:
    """The mean of the given scores, stage by stage; None where the judge gave none."""
    means: dict[str, float | None] = {}
    for stage in STAGES:
        scores = [rollout.judgement.score(stage) for group in judged.judgements for rollout in group.rollouts]
        given = [score for score in scores if score is not None]
        means[stage.value] = round(float(np.mean(given)), 4) if given else None
    return means


def watch_run(config: LocalConfig, step: int) -> None:
    """Write a warning when the judge departs from the truth or the held-out judge; stop a lost run with a warning.

    Raises:
        RubricEMError: the run is lost.
    """
    steps = read_log(config.out).steps
    drift = find_drift(steps, config.drift)
    if find_drift(steps[:-1], config.drift):
        drift = None  # the warning is in the log
    for warning in (drift, find_divergence(steps)):
        if warning:
            append_line(config.out / METRICS_FILE, {"step": step, "alarm": warning})
    lost = find_collapse(steps, config.watch)
    if lost:
        append_line(config.out / METRICS_FILE, {"step": step, "alarm": lost})
        raise RubricEMError(lost)


def say(step: int, steps: int, metrics: dict[str, Any]) -> None:
    """Print one line a step."""
    given = (metrics["true"] or metrics["judged"]).items()
    scores = " ".join(f"{name} {value:.2f}" for name, value in given if value is not None)
    seconds = sum(metrics["seconds"].values())
    sys.stdout.write(f"step {step}/{steps} {metrics['encounter']}: {scores}; bank {metrics['bank']}; {seconds:.1f} s\n")
    sys.stdout.flush()


async def audit_scores(parts: Parts, judged: JudgedStep, step: int) -> dict[str, Any]:
    """The training judge's scores beside the held-out judge's, on an audited step; nothing on others."""
    if parts.audit is None or step % parts.config.held_out_judge.every:
        return {}
    audit = await parts.audit.examine(judged.readings, judged.judgements)
    return {"audit": audit.model_dump()}
