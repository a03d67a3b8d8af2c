"""RubricEM in one process, readable top to bottom: SS-GRPO on task rollouts, the reflection meta-policy one step late.

    python trainers/local_ssgrpo.py --config local_almanac [steps=24 credit=answer_only meta_policy=false ...]

Each step (paper, Algorithm 1, in the order of its text): sample rollouts with the current weights, judge each group
and update its rubrics, launch reflections on new questions, then Phase A on the reflections of the previous step, then
Phase B on the rollouts. Stop it at any time; the same command resumes from its last checkpoint.

With `ahead: N` a step is sampled, judged and reflected on N steps before its turn, with the weights of that moment; the
updates run in a thread beside it. No step is sampled across a checkpoint, so a resumed run has the same numbers.

Deliberately absent: a critic, an entropy bonus, format rewards, several passes over a batch. In one process the
reflections of a step are waited for, so deferral changes which step trains on them, not the time.
"""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any

from rubricem_agent.files import lock_folder, trim_log
from rubricem_agent.learn.credit import NonFiniteLossError
from rubricem_agent.learn.metrics import (
    METRICS_FILE,
    GradientMetrics,
    UpdateMetrics,
    append_line,
    mean_by_stage,
    measure_rollouts,
    spread_shares,
)
from rubricem_agent.learn.monitor import watch_run
from rubricem_agent.learn.samples import Batch, Sample, pad_batch, reflection_samples
from rubricem_agent.reflection.reflector import measure_reflections
from rubricem_env.judge.scoring import refused_rubrics

from ..settings import make_out
from .checkpoint import begin_record, record_step, resume_run, save_run
from .crediting import credit_step
from .evaluation import audit_scores, evaluate_step
from .learner import compare_gradients
from .policy import save_policy
from .run import Run
from .sampling import JudgedStep, count_ahead, sample_steps


async def train(run: Run) -> None:
    """Run to the end of the plan, from the last checkpoint or the beginning."""
    config = run.config
    log = config.out / METRICS_FILE
    with closing(lock_folder(config.out)):
        done = resume_run(run)
        # Only now: a refused start must not overwrite the settings of the run in the folder.
        make_out(config.out, settings=config.model_dump_json(indent=1))
        run.learner.sync_sampler()
        run.deferred.relaunch()
        trim_log(log, done or -1)  # without a checkpoint the evaluation at step 0 is repeated too
        begin_record(run, done)
        if done == 0:
            await evaluate_step(run, 0)
        waiting: deque[JudgedStep] = deque()
        for step in range(done + 1, config.steps + 1):
            metrics = await train_step(run, step, waiting)
            append_line(log, {"step": step, **metrics})
            say(step, config.steps, metrics)
            watch_run(config.out, config.watch, config.drift)
            if step % config.evaluate_every == 0 or step == config.steps:
                await evaluate_step(run, step)
            if step % config.checkpoint_every == 0 or step == config.steps:
                save_run(run, step)
        save_policy(run.learner.policy, config)
        await run.policy.aclose()


async def train_step(run: Run, step: int, waiting: deque[JudgedStep]) -> dict[str, Any]:
    """One step of the algorithm; returns its metrics. `waiting` has the steps that were sampled ahead, in their order."""
    started = time.monotonic()
    reflecting = 0.0 if waiting else await sample_steps(run, waiting, 1)
    sampled = time.monotonic()
    judged = waiting.popleft()
    reflected, failed = run.deferred.collect(step=step)
    outcomes = [outcome for _, outcome in reflected]
    lessons = reflection_samples(outcomes, version=judged.version)
    samples, credit = credit_step(run, judged)
    record_step(run, judged, credit)
    age = run.learner.updates - judged.version
    work = partial(update_policy, run, samples, lessons, step)
    if missing := count_ahead(run.config, step) - len(waiting):
        later = asyncio.create_task(sample_steps(run, waiting, missing))
        try:
            compared, phase_a, phase_b = await asyncio.to_thread(work)
            updated = time.monotonic()
            await later
        finally:
            later.cancel()
    else:
        compared, phase_a, phase_b = work()
        updated = time.monotonic()
    run.learner.sync_sampler()
    return {
        "encounter": judged.batch.encounter,
        "true": mean_by_stage(judged.true) if judged.true else {},
        "judged": mean_by_stage([one.scores for group in judged.judgements for one in group.judgements]),
        **await audit_scores(run, judged, step),
        "trained_rollouts": len(samples),
        "ages": {str(age): len(samples)},
        "fallbacks": int(credit.filled.any(axis=1).sum()),
        "task": phase_b.model_dump() if phase_b else None,
        "reflection": phase_a.model_dump() if phase_a else None,
        **measure_reflections(outcomes, refused_rubrics(judged.judgements)),
        "staleness": [step - ticket.step for ticket, _ in reflected],
        "failed_reflections": [reason for _, reason in failed],
        "bank": len(run.bank),
        "spread": {name: round(share, 4) for name, share in spread_shares(judged.judgements).items()},
        "rollout_stats": measure_rollouts(judged.rollouts).model_dump(),
        "gradients": compared.model_dump() if compared else None,
        "seconds": {
            "sample": round(sampled - started - reflecting, 2),
            "reflect": round(reflecting, 2),
            "update": round(updated - sampled, 2),
            "wait": round(time.monotonic() - updated, 2),
        },
    }


def update_policy(
    run: Run, samples: Sequence[Sample], lessons: Sequence[Sample], step: int
) -> tuple[GradientMetrics | None, UpdateMetrics | None, UpdateMetrics | None]:
    """Phase A on the reflections, then Phase B on the rollouts; with them, how far the two agree."""
    compared = compare_phases(run, samples, lessons, step=step)
    phase_a = update(run, lessons, step, kl_coefficient=run.config.reflection.kl_coefficient)
    return compared, phase_a, update(run, samples, step)


def update(
    run: Run, samples: Sequence[Sample], step: int, *, kl_coefficient: float | None = None
) -> UpdateMetrics | None:
    """One optimiser step on the samples, if there are any; a refused batch is saved for inspection."""
    if not samples:
        return None
    batch: Batch = pad_batch(samples, pad_id=0)
    try:
        return run.learner.update(batch, kl_coefficient=kl_coefficient)
    except NonFiniteLossError:
        batch.save(run.config.out / f"refused-step-{step}.npz")
        raise


def compare_phases(run: Run, task: Sequence[Sample], lessons: Sequence[Sample], *, step: int) -> GradientMetrics | None:
    """Every Nth step, the cosine between the gradients of the two phases; None without both."""
    every = run.config.compare_gradients_every
    if not (every and step % every == 0 and task and lessons):
        return None
    return compare_gradients(run.learner, task=pad_batch(task, pad_id=0), reflection=pad_batch(lessons, pad_id=0))


def say(step: int, steps: int, metrics: dict[str, Any]) -> None:
    """Print one line a step."""
    given = (metrics["true"] or metrics["judged"]).items()
    scores = " ".join(f"{name} {value:.2f}" for name, value in given if value is not None)
    seconds = sum(metrics["seconds"].values())
    sys.stdout.write(f"step {step}/{steps} {metrics['encounter']}: {scores}; bank {metrics['bank']}; {seconds:.1f} s\n")
    sys.stdout.flush()
