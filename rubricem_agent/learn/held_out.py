"""How good a policy is on held-out questions of the almanac, by truth. The bank is off, as in the paper's main results."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rubricem_agent.learn.metrics import append_line
from rubricem_agent.policy.base import Opening, Policy, Sampling
from rubricem_agent.prompting import AgentPrompt
from rubricem_agent.rollout.run import Setting, run_groups
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.env.research_env import query_of
from rubricem_env.scaffold.reading import Reading
from rubricem_env.tools.base import Toolbox
from rubricem_env.world.judge import TrueQuality, true_quality
from rubricem_env.world.questions import Question


async def answer_held_out(
    policy: Policy,
    questions: Sequence[Question],
    *,
    prompt: AgentPrompt,
    toolbox: Toolbox,
    limits: EpisodeLimits,
    max_turn_tokens: int,
    seed: int,
    temperature: float = 0.0,
) -> list[Reading]:
    """Run one episode for each question, greedily by default."""

    async def opened(query: Query, _attempt: int) -> tuple[Opening, str]:
        return prompt.opening(query), prompt.hash

    sampling = Sampling(temperature=temperature, max_turn_tokens=max_turn_tokens)
    setting = Setting(policy, toolbox, limits, sampling)
    groups = await run_groups([query_of(question) for question in questions], opened, setting, group_size=1, seed=seed)
    return [group[0].reading for group in groups]


def mean_quality(questions: Sequence[Question], readings: Sequence[Reading]) -> tuple[TrueQuality, float]:
    """Mean true quality of one episode for each question, and the share that strict mode accepts."""
    qualities = [true_quality(question, reading) for question, reading in zip(questions, readings, strict=True)]
    valid = float(np.mean([not reading.rejections for reading in readings]))
    return TrueQuality(*np.mean(qualities, axis=0).tolist()), valid


def record_evaluation(log: Path, step: int, scores: tuple[TrueQuality, float]) -> None:
    """Write the scores of a step's policy into the run's log, and print them."""
    quality, valid = scores
    append_line(log, {"step": step, "held_out": quality._asdict(), "valid": valid})
    sys.stdout.write(f"step {step}: held-out answers {quality.answer:.3f} by truth, {valid:.0%} valid\n")
