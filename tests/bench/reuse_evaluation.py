"""Evaluates what a trained policy gains from its bank at inference: without it, across and within episodes.

    python tests/bench/reuse_evaluation.py RUN_DIR [--bank RUN_DIR] [--repeats 4] [--json FILE]

RUN_DIR is a finished run of `trainers/local_ssgrpo.py`. Answers are scored by truth and sampled at the run's
temperature, with the same seeds in each mode. `cross` retrieves lessons from the bank of the run, or of another run for
a policy trained without a bank. `within` reflects on a first attempt, unjudged as at inference, and then tries again.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rubricem_agent.learn.checkpoint import checkpoint_steps, find_checkpoint, load_checkpoint
from rubricem_agent.memory.bank import Retrieval, RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.snapshot import load_snapshot
from rubricem_agent.policy.base import Opening
from rubricem_agent.reflection.candidates import ReflectionError
from rubricem_agent.reflection.reflector import Reflector
from rubricem_agent.rollout.run import RolloutContext, run_groups
from rubricem_env.concurrency import derive_seed
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import Query
from rubricem_env.scaffold.parsed import ParsedTrajectory, parse_trajectory
from rubricem_env.world.judge import AlmanacJudge, true_quality
from rubricem_records.rollouts.sampling import Sampling
from rubricem_records.runs.run_settings import SETTINGS_FILE
from trainers.local.checkpoint import resume_run
from trainers.local.run import Run, make_run
from trainers.local.settings import LocalConfig
from trainers.settings import run_command

Mode = tuple[str, np.ndarray, float]
"""A way to use the bank, the quality of its answers (a row a question, a column a stage), the share with a lesson."""


async def compare(run: Run, *, repeats: int) -> list[Mode]:
    """Without the bank, across questions, and within the question."""
    own = RubricBank.in_memory(HashingEmbedder())
    first, _ = await attempt(run, None, "cross", repeats=repeats, draw="first")
    cross = await attempt(run, run.bank, "cross", repeats=repeats, draw="second")
    again = await attempt(run, None, "cross", repeats=repeats, draw="second")
    await reflect_on(run, first, own)
    within = await attempt(run, own, "within", repeats=repeats, draw="second")
    modes = []
    for name, (groups, reused) in (("none", again), ("cross", cross), ("within", within)):
        pairs = zip((run.truth[query.key] for query in run.held_out), groups, strict=True)
        rows = [np.mean([true_quality(question, one) for one in group], axis=0) for question, group in pairs]
        modes.append((name, np.array(rows), reused))
    return modes


async def attempt(
    run: Run, bank: RubricBank | None, mode: Retrieval, *, repeats: int, draw: str
) -> tuple[list[list[ParsedTrajectory]], float]:
    """Parsed trajectories of `repeats` episodes per question with lessons, and the share of questions that have one."""
    config, served = run.config, set[str]()

    async def opened(query: Query, _attempt: int) -> tuple[Opening, str]:
        found = bank.retrieve(query.question, mode) if bank else ()
        block, _ = run.injector.render(found, mode)
        if block:
            served.add(query.key)
        return run.prompt.opening(query, references=block), run.prompt.hash

    sampling = Sampling(temperature=config.temperature, max_turn_tokens=config.max_turn_tokens)
    queries = run.held_out
    seed = derive_seed(config.seed, "reuse", draw)
    context = RolloutContext(run.policy, run.toolbox, config.limits, sampling)
    groups = await run_groups(queries, opened, context, group_size=repeats, concurrency=config.rows, seed=seed)
    trajectories = [[parse_trajectory(rollout.trajectory) for rollout in group] for group in groups]
    return trajectories, len(served) / len(queries)


async def reflect_on(run: Run, groups: Sequence[Sequence[ParsedTrajectory]], bank: RubricBank) -> None:
    """One unjudged reflection on the first attempt at each question, through the bank's gate."""
    judge = AlmanacJudge(run.truth.values())  # never called: there is no judge at inference
    reflector = Reflector(run.policy, judge, bank, settings=run.config.reflection)

    async def one(parsed: ParsedTrajectory) -> None:
        try:
            await reflector.reflect_unjudged(parsed)
        except ReflectionError:
            return  # An attempt too long to reflect on leaves its question without a lesson; `reused` shows it.

    await asyncio.gather(*(one(group[0]) for group in groups))


def load_run(folder: Path) -> Run:
    """The run as its last checkpoint left it.

    Raises:
        ConfigError: the folder holds no run that has reached a checkpoint.
    """
    try:
        kept = LocalConfig.model_validate_json((folder / SETTINGS_FILE).read_bytes(), strict=False)
    except (OSError, ValueError) as cause:
        raise ConfigError(f"{folder} holds no {SETTINGS_FILE} of a local run; give the folder of one.") from cause
    run = make_run(kept.model_copy(update={"out": folder}))
    if not resume_run(run):
        raise ConfigError(f"the run in {folder} has no checkpoint; let it reach one.")
    return run


def load_bank(bank: RubricBank, folder: Path) -> None:
    """Load another run's bank into this one.

    Raises:
        ConfigError: the folder holds no checkpoint of a run.
    """
    root = folder / "checkpoints"
    if not checkpoint_steps(root):
        raise ConfigError(f"{folder} holds no checkpoint whose bank could be used; give the folder of a local run.")
    checkpoint = load_checkpoint(find_checkpoint(root))
    load_snapshot(bank, checkpoint.path("bank"), step=checkpoint.step)


def describe(modes: Sequence[Mode], *, seed: int) -> list[dict[str, Any]]:
    """Means with 95 % intervals over the questions, and the gain over none, question by question."""
    rng = np.random.default_rng(seed)
    _, base, _ = modes[0]
    rows: list[dict[str, Any]] = []
    for name, quality, reused in modes:
        draws = rng.integers(len(base), size=(2000, len(base)))
        gain = quality - base
        low, high = np.percentile(gain[draws].mean(axis=1), [2.5, 97.5], axis=0)
        rows.append(
            {"reuse": name, "questions_served": round(reused, 3)}
            | {
                str(stage): {
                    "mean": round(float(quality[:, column].mean()), 4),
                    "gain": round(float(gain[:, column].mean()), 4),
                    "interval": [round(float(low[column]), 4), round(float(high[column]), 4)],
                }
                for column, stage in enumerate(STAGES)
            }
        )
    return rows


async def _evaluate(folder: Path, bank: Path | None, repeats: int) -> list[dict[str, Any]]:
    run = load_run(folder)
    try:
        if bank:
            load_bank(run.bank, bank)
        return describe(await compare(run, repeats=repeats), seed=run.config.seed)
    finally:
        await run.policy.aclose()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each mode. A user error gives exit code 2 and one sentence on stderr."""
    parser = argparse.ArgumentParser(
        prog="python tests/bench/reuse_evaluation.py", description="Evaluate reuse at inference."
    )
    parser.add_argument("folder", type=Path, metavar="RUN_DIR")
    parser.add_argument("--bank", type=Path, metavar="RUN_DIR", help="use the bank of this run instead")
    parser.add_argument("--repeats", type=int, default=4, help="episodes a question")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here as well")
    chosen = parser.parse_args(arguments)

    def evaluate() -> None:
        rows = asyncio.run(_evaluate(chosen.folder, chosen.bank, max(1, chosen.repeats)))
        for row in rows:
            scores = "  ".join(f"{s.value} {row[s.value]['mean']:.3f} ({row[s.value]['gain']:+.3f})" for s in STAGES)
            sys.stdout.write(f"{row['reuse']:>6}: {scores}; {row['questions_served']:.0%} of questions served\n")
        if chosen.json:
            chosen.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")

    return run_command("reuse_evaluation", evaluate)


if __name__ == "__main__":
    sys.exit(main())
