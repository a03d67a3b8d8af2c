"""Old checkpoints of a run on veRL, deleted whole.

veRL deletes older weights itself, but only those that the same process has written, so that every restart would leave
some for ever; and never its queue, nor what is ours.
"""

import re
import shutil
from pathlib import Path

from rubricem_agent.learn.checkpoint import checkpoint_steps, find_checkpoint
from trainers.verl_backend.keeping import FOLDER

_NAME = re.compile(r"global_step_(\d+)")


def prune(folder: Path, *, step: int, keep: int | None) -> None:
    """Keep the latest `keep` checkpoints up to that of `step`, or all where it is None; later ones are not looked at."""
    if not keep:
        return
    weights = {int(name[1]): path for path in folder.glob("global_step_*") if (name := _NAME.fullmatch(path.name))}
    ours = {number: find_checkpoint(folder / FOLDER, step=number) for number in checkpoint_steps(folder / FOLDER)}
    known = sorted(number for number in {*weights, *ours} if number <= step)
    for number in known[:-keep]:
        for path in (weights.get(number), ours.get(number)):
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)
