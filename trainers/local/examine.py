"""How good the policy is on held-out questions, by truth; the bank is off, as in the paper's main results."""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rubricem_agent.learn.metrics_log import append_line
from rubricem_agent.policy.base import Opening, Sampling
from rubricem_agent.rollout.group import Plan, run_groups
from rubricem_agent.rollout.run import Setting
from rubricem_env.domain.query import Query
from rubricem_env.env.offline import query_of
from rubricem_env.scaffold.reading import read_trajectory
from rubricem_env.scaffold.violations import Mode
from rubricem_env.world.quality import TrueQuality, true_quality
from rubricem_env.world.questions import Question
from trainers.local.run_parts import Parts


class Examination(NamedTuple):
    """Means over the held-out questions."""

    quality: TrueQuality
    valid: float
    """Accepted by strict mode."""


def record_examination(log: Path, step: int, found: Examination) -> None:
    """Write what a step's policy was found to be into the run's log, and say it."""
    append_line(log, {"step": step, "held_out": found.quality._asdict(), "valid": found.valid})
    sys.stdout.write(f"step {step}: held-out answers {found.quality.answer:.3f} by truth, {found.valid:.0%} valid\n")


async def examine(parts: Parts, questions: tuple[Question, ...], *, temperature: float = 0.0) -> Examination:
    """One episode for each question, greedy unless told otherwise."""

    async def opened(query: Query) -> tuple[Opening, str]:
        return parts.prompt.opening(query), parts.prompt.hash

    sampling = Sampling(temperature=temperature, max_turn_tokens=parts.config.max_turn_tokens)
    plan = Plan([query_of(question) for question in questions], opened, group_size=1, seed=parts.config.seed)
    groups = await run_groups(plan, Setting(parts.policy, parts.toolbox, parts.config.limits, sampling))
    readings = [read_trajectory(group[0].trajectory) for group in groups]
    qualities = [true_quality(question, reading) for question, reading in zip(questions, readings, strict=True)]
    valid = float(np.mean([not reading.rejects(Mode.STRICT) for reading in readings]))
    return Examination(TrueQuality(*np.mean(qualities, axis=0).tolist()), valid)
