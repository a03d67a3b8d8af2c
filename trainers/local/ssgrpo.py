"""RubricEM in one process, readable top to bottom: SS-GRPO on task rollouts, the reflection meta-policy one step late.

    python trainers/local_ssgrpo.py --config local_almanac [steps=24 credit=answer_only meta_policy=false ...]

A step follows the paper's Algorithm 1 in the order of its text:

1. Sample rollouts with the current weights.
2. Judge each group and update its rubrics.
3. Launch reflections on new questions.
4. Phase A: update the weights on the reflections of the previous step.
5. Phase B: update the weights on the rollouts.

The run can be stopped at any time; the same command resumes from the last checkpoint.

With `ahead: N` a step is sampled, judged and reflected on up to N steps before its updates, with the weights of that
moment. The updates of an earlier step run in a thread meanwhile. Nothing is sampled beyond the next checkpoint, so a
resumed run has the same numbers.

Deliberately absent: a critic, an entropy bonus, format rewards, several passes over a batch. One process has one model,
so a step waits for its own reflections. Deferral changes which step trains on them; it saves no time.
"""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from rubricem_agent.learn.monitor import watch_run
from rubricem_agent.learn.samples import reflection_samples
from rubricem_agent.learn.step import (
    begin_record,
    collect_reflections,
    describe_groups,
    record_groups,
    refuse_lost_proposals,
)
from rubricem_records.files.run_lock import lock_folder
from rubricem_records.files.trimming import trim_log
from rubricem_records.runs.run_log import METRICS_FILE, append_line

from ..settings import make_out
from .checkpoint import resume_run, save_run
from .crediting import credit_step
from .evaluation import audit_scores, evaluate_step
from .policy import save_policy
from .run import Run
from .sampling import JudgedStep, count_ahead, sample_steps
from .updates import Updates, update_policy


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
        # Without a checkpoint, step 0 is evaluated again, so its line goes too.
        trim_log(log, done or -1)
        log.touch()  # a run that fails in its first step is a run, whose page says so
        begin_record(run.recorder, done, tokenizer=run.policy.tokenizer, bank=run.bank)
        if done == 0:
            await evaluate_step(run, 0)
        waiting: deque[JudgedStep] = deque()
        for step in range(done + 1, config.steps + 1):
            line = await train_step(run, step, waiting)
            append_line(log, {"step": step, **line})
            print_step(step, config.steps, line)
            watch_run(config.out, config.watch, config.drift)
            if step % config.evaluate_every == 0 or step == config.steps:
                await evaluate_step(run, step)
            if step % config.checkpoint_every == 0 or step == config.steps:
                save_run(run, step)
                run.policy.forget_drafts()  # as a run that resumes here
        save_policy(run.learner.policy, config)
        await run.policy.aclose()


async def train_step(run: Run, step: int, waiting: deque[JudgedStep]) -> dict[str, Any]:
    """Make one step of the algorithm; returns the step's line of the log.

    `waiting` has the steps that were sampled ahead, in order. A step that is not among them is sampled now.
    """
    started = time.monotonic()
    reflecting = 0.0 if waiting else await sample_steps(run, waiting, 1)
    sampled = time.monotonic()
    judged = waiting.popleft()
    reflections = collect_reflections(run.deferred, step=step, refused_rubrics=judged.refused_rubrics)
    lessons = reflection_samples(reflections.outcomes, version=judged.version)
    credited = credit_step(run, judged)
    limit = run.judge.settings.proposal_limit
    refuse_lost_proposals(credited.groups, limit=limit, way_out="The same command resumes when the judge answers.")
    record_groups(run.recorder, credited.groups, bank=run.bank, step=judged.batch.step)
    age = run.learner.updates - judged.version
    work = partial(update_policy, run, credited.samples, lessons, step=step)
    updates, updated = await _update_and_sample(run, work, waiting, count=count_ahead(run.config, step) - len(waiting))
    run.learner.sync_sampler()
    return {
        **describe_groups(credited.groups),
        **await audit_scores(run, judged, step),
        "ages": {str(age): len({sample.rollout for sample in credited.samples})},
        **updates.line,
        **reflections.line,
        "bank": len(run.bank),
        "seconds": {
            "sample": round(sampled - started - reflecting, 2),
            "reflect": round(reflecting, 2),
            "update": round(updated - sampled, 2),
            "wait": round(time.monotonic() - updated, 2),
        },
    }


async def _update_and_sample(
    run: Run, work: Callable[[], Updates], waiting: deque[JudgedStep], *, count: int
) -> tuple[Updates, float]:
    """Do the updates, in a thread while `count` steps are sampled ahead; returns them and the time of their end."""
    if not count:
        return work(), time.monotonic()
    sampling = asyncio.create_task(sample_steps(run, waiting, count))
    try:
        updates = await asyncio.to_thread(work)
        updated = time.monotonic()
        await sampling
    finally:
        sampling.cancel()
    return updates, updated


def print_step(step: int, steps: int, line: dict[str, Any]) -> None:
    """Print one line a step."""
    given = (line["true"] or line["judged"]).items()
    scores = " ".join(f"{name} {value:.2f}" for name, value in given if value is not None)
    seconds = sum(line["seconds"].values())
    sys.stdout.write(f"step {step}/{steps} {line['encounter']}: {scores}; bank {line['bank']}; {seconds:.1f} s\n")
    sys.stdout.flush()
