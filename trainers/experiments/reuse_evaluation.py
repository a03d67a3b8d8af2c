"""What a trained policy gains from its bank at inference: held-out questions without it, across, and within episodes.

    python trainers/experiments/reuse_evaluation.py RUN_DIR [--bank RUN_DIR] [--repeats 4] [--json FILE]

RUN_DIR is a finished run of `trainers/local_ssgrpo.py`. Scored by truth, sampled at the run's temperature. `cross`
retrieves what training has left in the bank, or in that of another run, for a policy that was trained without one;
`within` reflects on a first attempt, unjudged, as at inference, and then tries again. Every way is given the same seeds.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rubricem_agent.learn.checkpoint import checkpoint_steps, find_checkpoint, load_checkpoint
from rubricem_agent.learn.metrics import SETTINGS_FILE
from rubricem_agent.memory.bank import Retrieval, RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.snapshot import load_snapshot
from rubricem_agent.policy.base import Opening, Sampling
from rubricem_agent.reflection.candidates import PolicyCandidates, ReflectionError
from rubricem_agent.reflection.reflector import Reflector
from rubricem_agent.rollout.run import RolloutPlan, Setting, run_groups
from rubricem_env.concurrency import derive_seed
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import ConfigError, RubricEMError
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.research_env import query_of
from rubricem_env.scaffold.reading import Reading, read_trajectory
from rubricem_env.world.judge import AlmanacJudge, true_quality
from trainers.local.checkpoint import resume_run
from trainers.local.settings import LocalConfig
from trainers.local.setup import Parts, make_parts


class Way(NamedTuple):
    """One way of using the bank, and how good the answers were: a row a question, a column a stage."""

    name: str
    quality: np.ndarray
    reused: float
    """The share of questions that had something to reuse."""


async def compare(parts: Parts, *, repeats: int) -> list[Way]:
    """Without the bank, across questions, and within the question."""
    own = RubricBank.in_memory(HashingEmbedder())
    plain = await attempt(parts, None, Retrieval.CROSS, repeats=repeats, draw="first")
    cross = await attempt(parts, parts.bank, Retrieval.CROSS, repeats=repeats, draw="second")
    again = await attempt(parts, None, Retrieval.CROSS, repeats=repeats, draw="second")
    await reflect_on(parts, plain.readings, own)
    within = await attempt(parts, own, Retrieval.WITHIN, repeats=repeats, draw="second")
    return [found.graded(name) for name, found in (("none", again), ("cross", cross), ("within", within))]


class Attempts(NamedTuple):
    """Readings, question by question, with how many questions began with a lesson."""

    parts: Parts
    readings: list[list[Reading]]
    reused: float

    def graded(self, name: str) -> Way:
        rows = [
            np.mean([true_quality(question, reading) for reading in group], axis=0)
            for question, group in zip(self.parts.held_out, self.readings, strict=True)
        ]
        return Way(name, np.array(rows), self.reused)


async def attempt(parts: Parts, bank: RubricBank | None, mode: Retrieval, *, repeats: int, draw: str) -> Attempts:
    """So many episodes a question, with what the bank offers."""
    config, served = parts.config, set[str]()

    async def opened(query: Query) -> tuple[Opening, str]:
        found = bank.retrieve(query.question, mode) if bank else ()
        injection = parts.injector.inject("", found, mode)
        if injection.block:
            served.add(query.key)
        return parts.prompt.opening(query, references=injection.block), parts.prompt.hash

    sampling = Sampling(temperature=config.temperature, max_turn_tokens=config.max_turn_tokens)
    queries = [query_of(question) for question in parts.held_out]
    seed = derive_seed(config.seed, "reuse", draw)
    plan = RolloutPlan(queries, opened, group_size=repeats, concurrency=config.rows, seed=seed)
    groups = await run_groups(plan, Setting(parts.policy, parts.toolbox, config.limits, sampling))
    readings = [[read_trajectory(rollout.trajectory) for rollout in group] for group in groups]
    return Attempts(parts, readings, len(served) / len(queries))


async def reflect_on(parts: Parts, groups: Sequence[Sequence[Reading]], bank: RubricBank) -> None:
    """One unjudged reflection on the first attempt at each question, through the bank's gate."""
    judge = AlmanacJudge(parts.held_out)  # asked for nothing: at inference there is none
    reflector = Reflector(PolicyCandidates(parts.policy), judge, bank, settings=parts.config.reflection)

    async def one(reading: Reading) -> None:
        try:
            await reflector.reflect_unjudged(reading)
        except ReflectionError:
            return  # An attempt too long to reflect on leaves its question without a lesson, which `reused` counts.

    await asyncio.gather(*(one(group[0]) for group in groups))


def load_run(folder: Path) -> Parts:
    """The run as its last checkpoint left it.

    Raises:
        ConfigError: the folder holds no run that has reached a checkpoint.
    """
    try:
        kept = LocalConfig.model_validate_json((folder / SETTINGS_FILE).read_bytes(), strict=False)
    except (OSError, ValueError) as cause:
        raise ConfigError(f"{folder} holds no {SETTINGS_FILE} of a local run; give the folder of one.") from cause
    parts = make_parts(kept.model_copy(update={"out": folder}))
    if not resume_run(parts):
        raise ConfigError(f"the run in {folder} has no checkpoint; let it reach one.")
    return parts


def borrow_bank(bank: RubricBank, folder: Path) -> None:
    """Fill the bank with what another run has left in its own.

    Raises:
        ConfigError: the folder holds no checkpoint of a run.
    """
    root = folder / "checkpoints"
    if not checkpoint_steps(root):
        raise ConfigError(f"{folder} holds no checkpoint whose bank could be used; give the folder of a local run.")
    checkpoint = load_checkpoint(find_checkpoint(root))
    load_snapshot(bank, checkpoint.path("bank"), step=checkpoint.step)


def describe(ways: Sequence[Way], *, seed: int) -> list[dict[str, Any]]:
    """Means with 95 % intervals over the questions, and the gain over none, question by question."""
    rng = np.random.default_rng(seed)
    base = ways[0].quality
    rows: list[dict[str, Any]] = []
    for way in ways:
        draws = rng.integers(len(base), size=(2000, len(base)))
        gain = way.quality - base
        low, high = np.percentile(gain[draws].mean(axis=1), [2.5, 97.5], axis=0)
        rows.append(
            {"reuse": way.name, "questions_served": round(way.reused, 3)}
            | {
                stage.value: {
                    "mean": round(float(way.quality[:, place].mean()), 4),
                    "gain": round(float(gain[:, place].mean()), 4),
                    "interval": [round(float(low[place]), 4), round(float(high[place]), 4)],
                }
                for place, stage in enumerate(STAGES)
            }
        )
    return rows


async def _examine(folder: Path, bank: Path | None, repeats: int) -> list[dict[str, Any]]:
    parts = load_run(folder)
    try:
        if bank:
            borrow_bank(parts.bank, bank)
        return describe(await compare(parts, repeats=repeats), seed=parts.config.seed)
    finally:
        await parts.policy.aclose()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each way; 2 and one sentence on stderr for a mistake."""
    parser = argparse.ArgumentParser(
        prog="python trainers/experiments/reuse_evaluation.py", description="Examine reuse at inference."
    )
    parser.add_argument("folder", type=Path, metavar="RUN_DIR")
    parser.add_argument("--bank", type=Path, metavar="RUN_DIR", help="use the bank of this run instead")
    parser.add_argument("--repeats", type=int, default=4, help="episodes a question")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here as well")
    chosen = parser.parse_args(arguments)
    try:
        rows = asyncio.run(_examine(chosen.folder, chosen.bank, max(1, chosen.repeats)))
    except RubricEMError as mistake:
        sys.stderr.write(f"reuse_exam: {mistake}\n")
        return 2
    for row in rows:
        told = "  ".join(
            f"{stage.value} {row[stage.value]['mean']:.3f} ({row[stage.value]['gain']:+.3f})" for stage in STAGES
        )
        sys.stdout.write(f"{row['reuse']:>6}: {told}; {row['questions_served']:.0%} of questions served\n")
    try:
        if chosen.json:
            chosen.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    except OSError as cause:
        sys.stderr.write(f"reuse_exam: cannot write {chosen.json}: {cause.strerror}. The numbers are those above.\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
