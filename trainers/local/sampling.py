"""Samples, judges and reflects on steps; with `ahead`, some steps before they are trained on."""

import time
from collections import deque
from itertools import islice
from typing import NamedTuple

from rubricem_agent.learn.curriculum import QueryBatch
from rubricem_agent.learn.deferred import Ticket
from rubricem_agent.learn.step import AttemptLessons, measure_lessons, retrieve_lessons
from rubricem_agent.memory.inject import NO_LESSONS, Block
from rubricem_agent.policy.base import Opening
from rubricem_agent.progress import counted
from rubricem_agent.reflection.reflector import judged_attempts
from rubricem_agent.rollout.run import RolloutContext, run_groups
from rubricem_env.concurrency import derive_seed
from rubricem_env.domain.trajectory import Query
from rubricem_env.judge.group import Group
from rubricem_env.judge.judgements import GroupJudgement, refused_rubrics
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.sampling import Sampling

from .run import Run
from .settings import LocalConfig


class JudgedStep(NamedTuple):
    """A step's rollouts, group by group, with their scores."""

    batch: QueryBatch
    version: int
    """Updates of the weights that sampled it."""
    rollouts: list[list[Rollout]]
    """The attempts at each question."""
    groups: list[Group]
    """The same rollouts as the judge reads them."""
    judgements: tuple[GroupJudgement, ...]
    lessons: dict[str, AttemptLessons]
    """Those in the prompt of each attempt, by the question's key."""

    @property
    def refused_rubrics(self) -> dict[str, int]:
        """How many proposed rubrics were refused, by reason."""
        return refused_rubrics(self.judgements)


def count_ahead(config: LocalConfig, step: int) -> int:
    """The number of later steps that are sampled by the end of `step`; none of them lies beyond the next checkpoint."""
    return min(config.ahead, -step % config.checkpoint_every, config.steps - step)


async def sample_steps(run: Run, waiting: deque[JudgedStep], count: int) -> float:
    """Sample, judge and reflect on the next steps; returns the seconds of reflecting."""
    seconds = 0.0
    for batch in islice(run.curriculum, count):
        judged = await sample_and_judge(run, batch)
        started = time.monotonic()
        if run.config.is_reflected_on(batch.encounter):
            await reflect(run, judged)
        seconds += time.monotonic() - started
        waiting.append(judged)
    return seconds


async def sample_and_judge(run: Run, batch: QueryBatch) -> JudgedStep:
    """The rollouts of a step's questions with their judgements. Each trajectory is parsed once, in its episode."""
    config = run.config
    queries = [run.train[key] for key in batch.keys]
    blocks = {query.key: _lesson_blocks(run, query, batch) for query in queries}

    async def opened(query: Query, attempt: int) -> tuple[Opening, str]:
        text, _ = blocks[query.key][attempt]
        return run.prompt.opening(query, references=text), run.prompt.hash

    sampling = Sampling(temperature=config.temperature, max_turn_tokens=config.max_turn_tokens)
    seed = derive_seed(config.seed, batch.step, "rollouts")
    context = RolloutContext(run.policy, run.toolbox, config.limits, sampling, config.context)
    with counted(f"step {batch.step}: attempts", len(queries) * config.group_size) as count:
        rollouts = await run_groups(
            queries,
            opened,
            context,
            group_size=config.group_size,
            concurrency=config.rows,
            seed=seed,
            on_rollout=count,
        )
    groups = [
        Group.of(query, (rollout.parsed for rollout in attempts))
        for query, attempts in zip(queries, rollouts, strict=True)
    ]
    judgements = await run.judge.judge_step(groups, step=batch.step)
    lessons: dict[str, AttemptLessons] = {key: [items for _, items in group] for key, group in blocks.items()}
    for query, judged in zip(queries, judgements, strict=True):
        measure_lessons(run.bank, query.question, judged, lessons[query.key], step=batch.step)
    return JudgedStep(batch, run.learner.synced, rollouts, groups, judgements, lessons)


def _lesson_blocks(run: Run, query: Query, batch: QueryBatch) -> list[Block]:
    """The lessons before each attempt at a question."""
    config = run.config
    guided = config.guided_attempts(config.group_size, step=batch.step)
    if not guided:
        return [NO_LESSONS] * config.group_size
    seed = derive_seed(config.seed, batch.step, query.key, "lessons")
    lessons = retrieve_lessons(
        run.bank, query.question, encounter=batch.encounter, on_miss=config.on_miss, guided=guided, seed=seed
    )
    return lessons.blocks(run.injector, config.group_size)


async def reflect(run: Run, judged: JudgedStep) -> None:
    """Launch the reflections of a step and wait for them, since one process has one model.

    The next step trains on them.
    """
    for key, group, judgement in zip(judged.batch.keys, judged.groups, judged.judgements, strict=True):
        ticket = Ticket(judged.batch.step, key)
        run.pending[ticket] = judged_attempts(group, judgement)
        run.deferred.launch(ticket)
    await run.deferred.drain()
