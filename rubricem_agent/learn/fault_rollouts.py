"""Rollouts whose every decision is known: the almanac's teacher with faults drawn at a chance, played for real."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

import numpy as np

from rubricem_agent.learn.credit_noise import MarkedGroup
from rubricem_env.domain.rubric import Polarity
from rubricem_env.domain.stage import Stage
from rubricem_env.env.drive import advance
from rubricem_env.env.episode import Episode, Finished
from rubricem_env.env.offline import query_of
from rubricem_env.scaffold.reading import Reading
from rubricem_env.tools.base import Toolbox
from rubricem_env.world.criteria import criteria_of
from rubricem_env.world.evidence import Evidence
from rubricem_env.world.faults import Faults, Slips, draw_slips
from rubricem_env.world.questions import Question
from rubricem_env.world.teacher import AlmanacTeacher

DECIDING_STAGES = (Stage.PLAN, Stage.RESEARCH, Stage.RESEARCH, Stage.RESEARCH, Stage.ANSWER, Stage.PLAN)
"""Where each fault is decided, in the order of `fault_flags`."""


def fault_flags(slips: Slips) -> tuple[bool, ...]:
    """Which faults were drawn: skips a need, repeats, trusts the stale, claims unfound, forgets to cite, no convention."""
    return (
        bool(slips.skipped),
        slips.repeats_query,
        slips.trusts_stale,
        bool(slips.unfounded),
        slips.forgets_citation,
        slips.misses_convention,
    )


def play_groups(
    questions: Sequence[Question],
    toolbox: Toolbox,
    *,
    rollouts: int,
    chance: float,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> list[MarkedGroup]:
    """Play each question `rollouts` times with every fault at `chance`; marks are the true ones."""
    faults = Faults(**dict.fromkeys(Faults.model_fields, chance))
    seeds = count(seed * 1_000_003)
    groups = []
    for done, question in enumerate(questions, 1):
        slips = [draw_slips(question, faults, seed=next(seeds)) for _ in range(rollouts)]
        readings = asyncio.run(_play_all(question, slips, toolbox))
        groups.append(_marked(question, slips, readings))
        progress(done)
    return groups


async def play(question: Question, slips: Slips, toolbox: Toolbox) -> Reading:
    """One whole episode of the teacher with these faults."""
    teacher = AlmanacTeacher(question, slips)
    query = query_of(question)
    episode = Episode(query)
    observations: list[str] = []
    reply = await advance(episode, toolbox, teacher.turn(observations))
    while not isinstance(reply, Finished):
        observations.append(reply.observation)
        reply = await advance(episode, toolbox, teacher.turn(observations))
    return episode.read()


async def _play_all(question: Question, slips: Sequence[Slips], toolbox: Toolbox) -> list[Reading]:
    return list(await asyncio.gather(*(play(question, drawn, toolbox) for drawn in slips)))


def _marked(question: Question, slips: Sequence[Slips], readings: Sequence[Reading]) -> MarkedGroup:
    criteria = criteria_of(question)
    evidence = [Evidence.of(reading) for reading in readings]
    return MarkedGroup(
        faults=np.array([fault_flags(drawn) for drawn in slips]),
        marks=np.array([[criterion.mark(seen) for criterion in criteria] for seen in evidence], dtype=np.int8),
        weights=np.array([criterion.rubric.weight for criterion in criteria]),
        is_flaw=np.array([criterion.rubric.polarity is Polarity.NEGATIVE for criterion in criteria]),
        stages=np.array([criterion.rubric.stage.position for criterion in criteria], dtype=np.int8),
    )
