"""RubricEM in one process, readable top to bottom: SS-GRPO on task rollouts, the reflection meta-policy one step late.

    python trainers/local_ssgrpo.py --config configs/local_almanac.yaml [steps=24 credit=terminal meta_policy=false ...]

Each step (paper, Algorithm 1, in the order of its text): sample rollouts with the weights as they are, judge each
group and let its rubrics evolve, launch reflections on new questions, then Phase A on the reflections of the step
before, then Phase B on the rollouts. Stop it at any moment; started again it goes on from its last checkpoint.

Deliberately absent: a critic, an entropy bonus, format rewards, several passes over a batch. In one process the
reflections are written while nothing else runs, so deferral changes what they are trained with, not the time.
"""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from transformers.utils.logging import disable_progress_bar

from rubricem_agent.files import trim_log
from rubricem_agent.learn.credit import NonFiniteLossError
from rubricem_agent.learn.curriculum import Encounter, QueryBatch
from rubricem_agent.learn.deferred import Ticket
from rubricem_agent.learn.metrics import METRICS_FILE, append_line, measure_habits, read_log
from rubricem_agent.learn.monitor import CollapseError, find_collapse, find_drift
from rubricem_agent.learn.samples import Batch, Sample, pad_batch, reflection_samples, task_samples
from rubricem_agent.memory.bank import Retrieved
from rubricem_agent.policy.base import Opening, Sampling
from rubricem_agent.reflection.reflector import JudgedAttempt, ReflectionOutcome, readable_share
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.run import RolloutPlan, Setting, run_groups
from rubricem_env.concurrency import derive_seed
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import RubricEMError
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.research_env import query_of
from rubricem_env.judge.base import Group
from rubricem_env.judge.scoring import GroupJudgement
from rubricem_env.scaffold.reading import read_trajectory
from rubricem_env.world.judge import true_quality
from trainers.local.checkpoint import keep_run, resume_run, save_policy
from trainers.local.learner import GradientComparison, UpdateReport, compare_gradients
from trainers.local.logging import begin_record, evaluate_step, record_step
from trainers.local.settings import LocalConfig
from trainers.local.setup import Parts, make_parts
from trainers.settings import make_out, read_settings


class JudgedStep(NamedTuple):
    """A step's rollouts, group by group, with what the judge said of them."""

    groups: list[list[Rollout]]
    judgements: tuple[GroupJudgement, ...]
    shown: dict[str, tuple[Retrieved, ...]]
    """Lessons that stood before each question, by its key."""


async def train(parts: Parts) -> None:
    """Run to the end of the plan, from wherever the last checkpoint left it."""
    config = parts.config
    make_out(config.out)
    log = config.out / METRICS_FILE
    done = resume_run(parts)
    # Only now: a start that is refused leaves the settings of the run that the folder holds.
    make_out(config.out, settings=config.model_dump_json(indent=1))
    parts.deferred.relaunch()
    trim_log(log, done or -1)  # without a checkpoint the evaluation at step 0 is repeated too
    begin_record(parts, done)
    if done == 0:
        await evaluate_step(parts, 0)
    for step in range(done + 1, config.steps + 1):
        metrics = await train_step(parts, next(parts.curriculum))
        append_line(log, {"step": step, **metrics})
        say(step, config.steps, metrics)
        watch_run(config, step)
        if step % config.evaluate_every == 0 or step == config.steps:
            await evaluate_step(parts, step)
        if step % config.checkpoint_every == 0 or step == config.steps:
            keep_run(parts, step)
    save_policy(parts)
    await parts.policy.aclose()


async def train_step(parts: Parts, batch: QueryBatch) -> dict[str, Any]:
    """One step of the algorithm; returns what there is to know of it."""
    started = time.monotonic()
    late = parts.deferred.collect(step=batch.step)
    judged = await sample_and_judge(parts, batch)
    sampled = time.monotonic()
    if parts.config.meta_policy and batch.encounter is Encounter.NEW:
        await reflect(parts, batch, judged)
    reflected = time.monotonic()
    outcomes = [done.result for done in late.done]
    lessons = reflection_samples(outcomes, version=parts.learner.updates)
    credited = task_samples(judged.groups, judged.judgements, mode=parts.config.credit, version=parts.learner.updates)
    record_step(parts, batch, judged.groups, judgements=judged.judgements, credit=credited.credit, shown=judged.shown)
    compared = compare_phases(parts, credited.samples, lessons, step=batch.step)
    phase_a = update(parts, lessons, batch.step)
    phase_b = update(parts, credited.samples, batch.step)
    return {
        "encounter": batch.encounter.value,
        "true": true_scores(parts, judged),
        "judged": judged_scores(judged),
        "trained_rollouts": len(credited.samples),
        "task": _report(phase_b),
        "reflection": _report(phase_a),
        "utility": mean_utility(outcomes),
        "readable": readable_share(outcomes),
        "staleness": list(late.staleness),
        "failed_reflections": [failure.reason for failure in late.failed],
        "bank": len(parts.bank),
        "habits": measure_habits(judged.groups)._asdict(),
        "gradients": compared._asdict() if compared else None,
        "seconds": {
            "sample": round(sampled - started, 2),
            "reflect": round(reflected - sampled, 2),
            "update": round(time.monotonic() - reflected, 2),
        },
    }


async def sample_and_judge(parts: Parts, batch: QueryBatch) -> JudgedStep:
    """The rollouts of a step's questions, and their judgements."""
    config = parts.config
    queries = [query_of(parts.train[key]) for key in batch.keys]
    mode = batch.retrieval
    shown: dict[str, tuple[Retrieved, ...]] = {}

    async def opened(query: Query) -> tuple[Opening, str]:
        found = parts.bank.retrieve(query.question, mode) if config.meta_policy else ()
        injection = parts.injector.inject("", found, mode)
        shown[query.key] = injection.shown
        return parts.prompt.opening(query, references=injection.block), parts.prompt.hash

    sampling = Sampling(temperature=config.temperature, max_turn_tokens=config.max_turn_tokens)
    seed = derive_seed(config.seed, batch.step, "rollouts")
    plan = RolloutPlan(queries, opened, group_size=config.group_size, concurrency=config.rows, seed=seed)
    groups = await run_groups(plan, Setting(parts.policy, parts.toolbox, config.limits, sampling))
    judging = [
        Group.of(query, (rollout.trajectory for rollout in group)) for query, group in zip(queries, groups, strict=True)
    ]
    return JudgedStep(groups, await parts.judge.judge_step(judging, step=batch.step), shown)


async def reflect(parts: Parts, batch: QueryBatch, judged: JudgedStep) -> None:
    """Launch the reflections of a step. They are drained here, since one process has one model; trained on next step."""
    for key, group, judgement in zip(batch.keys, judged.groups, judged.judgements, strict=True):
        ticket = Ticket(batch.step, key)
        parts.pending[ticket] = [
            JudgedAttempt(read_trajectory(rollout.trajectory), found.judgement, judgement.rubrics)
            for rollout, found in zip(group, judgement.rollouts, strict=True)
        ]
        parts.deferred.launch(ticket)
    await parts.deferred.drain()


def update(parts: Parts, samples: Sequence[Sample], step: int) -> UpdateReport | None:
    """One optimiser step on samples, or none without any; a refused batch is kept for a look."""
    if not samples:
        return None
    batch: Batch = pad_batch(samples, pad_id=0)
    try:
        return parts.learner.update(batch)
    except NonFiniteLossError:
        batch.save(parts.config.out / f"refused-step-{step}.npz")
        raise


def compare_phases(
    parts: Parts, task: Sequence[Sample], lessons: Sequence[Sample], *, step: int
) -> GradientComparison | None:
    """Now and then, the cosine between the gradients of the two phases; None without both."""
    every = parts.config.compare_gradients_every
    if not (every and step % every == 0 and task and lessons):
        return None
    return compare_gradients(parts.learner, task=pad_batch(task, pad_id=0), reflection=pad_batch(lessons, pad_id=0))


def true_scores(parts: Parts, judged: JudgedStep) -> dict[str, float]:
    """The true quality of the rollouts: written down to audit the judge, read by nothing that trains."""
    rows = [
        true_quality(parts.train[judgement.query_key], read_trajectory(rollout.trajectory))
        for group, judgement in zip(judged.groups, judged.judgements, strict=True)
        for rollout in group
    ]
    return {stage.value: round(value, 4) for stage, value in zip(STAGES, np.mean(rows, axis=0).tolist(), strict=True)}


def judged_scores(judged: JudgedStep) -> dict[str, float | None]:
    """The mean of the scores there are, stage by stage; None where the judge gave none."""
    means: dict[str, float | None] = {}
    for stage in STAGES:
        scores = [found.judgement.score(stage) for one in judged.judgements for found in one.rollouts]
        given = [score for score in scores if score is not None]
        means[stage.value] = round(float(np.mean(given)), 4) if given else None
    return means


def mean_utility(outcomes: Sequence[ReflectionOutcome]) -> float | None:
    utilities = [one.score.utility for outcome in outcomes for one in outcome.scored if one.score is not None]
    return round(float(np.mean(utilities)), 4) if utilities else None


def watch_run(config: LocalConfig, step: int) -> None:
    """Write an alarm down where judge and truth part; stop a run that is lost, and write that down as well.

    Raises:
        CollapseError: the run is lost.
    """
    steps = read_log(config.out).steps
    drifted = find_drift(steps, config.drift)
    if drifted and not find_drift(steps[:-1], config.drift):
        append_line(config.out / METRICS_FILE, {"step": step, "alarm": drifted})
    lost = find_collapse(steps, config.watch)
    if lost:
        append_line(config.out / METRICS_FILE, {"step": step, "alarm": lost})
        raise CollapseError(lost)


def say(step: int, steps: int, metrics: dict[str, Any]) -> None:
    """One line a step for whoever watches."""
    scores = " ".join(f"{name} {value:.2f}" for name, value in metrics["true"].items())
    seconds = sum(metrics["seconds"].values())
    sys.stdout.write(f"step {step}/{steps} {metrics['encounter']}: {scores}; bank {metrics['bank']}; {seconds:.1f} s\n")
    sys.stdout.flush()


def _report(found: UpdateReport | None) -> dict[str, Any] | None:
    if found is None:
        return None
    stages = {stage.value: {**told._asdict()} for stage, told in found.stages.items()}
    return {**found._asdict(), "stages": stages}


def main(arguments: Sequence[str] | None = None) -> int:
    """Train; 2 and one sentence on stderr for a mistake or a refused step, 130 for an interrupt."""
    parser = argparse.ArgumentParser(prog="python trainers/local_ssgrpo.py", description="Train in one process.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE")
    chosen = parser.parse_args(arguments)
    disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        asyncio.run(train(make_parts(read_settings(chosen.config, LocalConfig, changes=chosen.changes))))
    except RubricEMError as mistake:
        sys.stderr.write(f"local_ssgrpo: {mistake}\n")
        return 2
    except KeyboardInterrupt:
        # All that is left is to end the thread that decodes; a second interrupt would only be heard as a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stderr.write("local_ssgrpo: stopped; the same command goes on from the last checkpoint\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
