"""Examines the checkpoints of a run in the almanac on held-out questions, by truth, and adds what it finds to the log.

    python -m trainers.verl_backend.evaluate runs/verl_almanac_cpu [--held-out validation]

veRL's trainers examine nothing while they train. The examination is the local trainer's: greedily, with the bank off;
`rubricem report` draws its curve. What has been examined is not examined again.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rubricem_agent.learn.metrics import METRICS_FILE
from rubricem_agent.viewer.logs import read_run
from rubricem_env.domain.errors import ConfigError, RubricEMError
from rubricem_env.world.questions import Question
from trainers.local.logging import HeldOutScores, examine, record_examination
from trainers.local.settings import LocalConfig
from trainers.local.setup import make_parts

Merge = Callable[[Path, Path], None]
"""Makes of a checkpoint's actor a folder that transformers loads."""
_SHARED = ("system", "max_turn_tokens", "limits", "seed")
"""Settings that the two trainers have in common and that an examination goes by."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine and print a line a checkpoint; 2 and one sentence on stderr for a mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m trainers.verl_backend.evaluate", description="Examine the checkpoints of a run in the almanac."
    )
    parser.add_argument("run", type=Path, help="the folder of a run, its trainer.default_local_dir")
    parser.add_argument("--held-out", choices=("validation", "test"), default="validation")
    chosen = parser.parse_args(arguments)
    try:
        examine_run(chosen.run, held_out=chosen.held_out)
    except RubricEMError as mistake:
        sys.stderr.write(f"exam: {mistake}\n")
        return 2
    return 0


def examine_run(
    run: Path, *, held_out: str = "validation", merge: Merge | None = None, most: int | None = None
) -> None:
    """Examine the policy that the run started from, then each checkpoint; `most` questions, or all.

    Raises:
        ConfigError: the run was not in the almanac, or a checkpoint cannot be made into a model.
        FileFormatError: the folder holds no run.
    """
    _, settings, log = read_run(run)
    if settings.get("almanac") is None:
        raise ConfigError(f"{run} is no run in the almanac; examine its checkpoints with `rubricem eval`.")
    known = {line.step for line in log.exams}
    for step in (0, *saved_steps(run)):
        if step in known:
            continue
        with tempfile.TemporaryDirectory() as place:
            policy = Path(settings["policy"]) if step == 0 else Path(place) / "model"
            if step:
                (merge or merge_shards)(run / f"global_step_{step}" / "actor", policy)
            found = asyncio.run(_examine(_config(settings, policy, held_out), most))
        record_examination(run / METRICS_FILE, step, found)


def saved_steps(run: Path) -> list[int]:
    """The steps of which the run has kept weights."""
    names = [path.parent.name.removeprefix("global_step_") for path in run.glob("global_step_*/actor")]
    return sorted(int(name) for name in names if name.isdecimal())


def merge_shards(actor: Path, target: Path) -> None:
    """By veRL's own command.

    Raises:
        ConfigError: it failed; the message has its last words.
    """
    asked = ("--backend", "fsdp", "--local_dir", str(actor), "--target_dir", str(target))
    done = subprocess.run(
        [sys.executable, "-m", "verl.model_merger", "merge", *asked], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ConfigError(
            f"veRL could not merge {actor}: {done.stderr.strip()[-300:]} Run this where veRL is installed."
        )


def _config(settings: dict[str, Any], policy: Path, held_out: str) -> LocalConfig:
    shared = {name: settings[name] for name in _SHARED}
    return LocalConfig.model_validate(
        {**shared, "policy": policy, "out": policy, "held_out": held_out, "record": False}, strict=False
    )


async def _examine(config: LocalConfig, most: int | None) -> HeldOutScores:
    parts = make_parts(config)
    questions: tuple[Question, ...] = parts.held_out[:most]
    try:
        return await examine(parts, questions)
    finally:
        await parts.policy.aclose()


if __name__ == "__main__":
    sys.exit(main())
