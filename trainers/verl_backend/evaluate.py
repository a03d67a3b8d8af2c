"""Evaluates the checkpoints of an almanac run on held-out questions, by truth, and adds the scores to the run's log.

    python -m rubricem_trainers.verl_backend.evaluate runs/verl_almanac_cpu [--held-out validation]

The veRL trainers do not evaluate while they train. The policy answers greedily with the bank off, as in the local
trainer; `rubricem report` draws the curve. A step that is already in the log is not evaluated again.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import torch

from rubricem_agent.learn.held_out import answer_held_out, mean_quality, record_evaluation
from rubricem_agent.policy.local import LocalPolicy, load_model, load_tokenizer
from rubricem_agent.prompting import agent_prompt, read_agent_prompts
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.offline import query_of, shipped_toolbox
from rubricem_records.runs.recorded_run import read_run
from rubricem_records.runs.run_log import METRICS_FILE

from ..settings import run_command
from .saved_steps import saved_steps
from .watch import merge_shards

ROWS, MAX_LENGTH = 64, 2_400
"""Conversations decoded together, and tokens of one: the local trainer's defaults."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluate and print a line per checkpoint. A user error gives exit code 2 and one sentence on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m trainers.verl_backend.evaluate", description="Evaluate the checkpoints of an almanac run."
    )
    parser.add_argument("run", type=Path, help="the folder of a run, its trainer.default_local_dir")
    parser.add_argument("--held-out", choices=("validation", "test"), default="validation")
    chosen = parser.parse_args(arguments)
    return run_command("evaluate", lambda: evaluate_run(chosen.run, held_out=chosen.held_out))


def evaluate_run(
    run: Path,
    *,
    held_out: str = "validation",
    merge: Callable[[Path, Path], None] = merge_shards,
    max_questions: int | None = None,
) -> None:
    """Evaluate the policy that the run started from, then each checkpoint.

    `merge` turns the actor folder of a checkpoint into a folder that transformers loads.

    Raises:
        ConfigError: the run was not in the almanac, or a checkpoint cannot be converted into a model.
        FileFormatError: the folder holds no run.
    """
    _, settings, log = read_run(run)
    if settings.get("almanac") is None:
        raise ConfigError(f"{run} is not a run in the almanac; evaluate its checkpoints with `rubricem eval`.")
    shipped = load_questions(shipped_questions_path())
    questions = [question for question in shipped if question.split == held_out][:max_questions]
    for step in sorted({0, *saved_steps(run)} - {line.step for line in log.evaluations}):
        with tempfile.TemporaryDirectory() as folder:
            policy = Path(settings["policy"]) if step == 0 else Path(folder) / "model"
            if step:
                merge(run / f"global_step_{step}" / "actor", policy)
            trajectories = asyncio.run(_answer(policy, settings, [query_of(question) for question in questions]))
        record_evaluation(run / METRICS_FILE, step, mean_quality(questions, trajectories), trajectories)


async def _answer(folder: Path, settings: Mapping[str, Any], queries: Sequence[Query]) -> list[ParsedTrajectory]:
    model = load_model(folder)
    model.to(dtype=torch.float32)  # type: ignore[call-arg]
    toolbox = shipped_toolbox()
    async with aclosing(LocalPolicy(model, load_tokenizer(folder), rows=ROWS, max_length=MAX_LENGTH)) as policy:
        rollouts = await answer_held_out(
            policy,
            queries,
            prompt=agent_prompt(
                toolbox.names,
                style=settings.get("style", "scaffold"),
                system=settings["system"],
                prompts=read_agent_prompts(Path(settings["prompts"]) if settings.get("prompts") else None),
            ),
            toolbox=toolbox,
            limits=EpisodeLimits.model_validate(settings["limits"], strict=False),
            context=ContextLimits.model_validate(settings["context"], strict=False),
            max_turn_tokens=settings["max_turn_tokens"],
            seed=settings["seed"],
        )
    return [rollout.parsed for rollout in rollouts]


if __name__ == "__main__":
    sys.exit(main())
