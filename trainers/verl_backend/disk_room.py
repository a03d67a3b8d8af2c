"""The room on the disk of a run: looked at after every step, and before every checkpoint."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from rubricem_agent.learn.checkpoint import checkpoint_steps, find_checkpoint
from rubricem_env.domain.errors import UsageError

from .checkpoint import FOLDER
from .saved_steps import saved_steps

_GIB = 2**30


class DiskRoom:
    """Whether the next checkpoint of a run will find room; what the latest one takes is what the next one needs."""

    def __init__(
        self,
        folder: Path,
        *,
        free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
        say: Callable[[str], object] = sys.stderr.write,
    ) -> None:
        """`say` gets one line when the room begins to be short."""
        self._folder = folder
        self._free, self._say = free, say
        self._is_short = False

    def watch(self) -> None:
        """Warn, once for each shortage, while there is still time to make room."""
        shortage = self._shortage()
        if shortage and not self._is_short:
            self._say(f"verl_ssgrpo: {shortage}: the run will stop before its next one. Make room until then.\n")
        self._is_short = bool(shortage)

    def refuse(self) -> None:
        """Stop before a checkpoint that would be left torn.

        Raises:
            UsageError: less is free than the latest checkpoint takes.
        """
        if shortage := self._shortage():
            raise UsageError(
                f"{shortage}: nothing was written, and step {saved_steps(self._folder)[-1]} is whole. Make room; the "
                "same command resumes from it. Fewer are kept with trainer.max_actor_ckpt_to_keep."
            )

    def _shortage(self) -> str:
        """What is missing; "" where there is room, or nothing is saved yet."""
        steps = saved_steps(self._folder)
        if not steps:
            return ""
        ours = checkpoint_steps(self._folder / FOLDER)
        latest = [self._folder / f"global_step_{steps[-1]}"]
        latest += [find_checkpoint(self._folder / FOLDER, step=ours[-1])] if ours else []
        needed = sum(file.stat().st_size for part in latest for file in part.rglob("*") if file.is_file())
        room = self._free(self._folder)
        if room >= needed:
            return ""
        return f"{self._folder} has {room / _GIB:.3g} GiB free, and a checkpoint takes {needed / _GIB:.3g}"
