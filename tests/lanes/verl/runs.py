"""Runs of `trainers/verl_ssgrpo.py` in a process group and a Ray of their own, both killed at the end."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "trainers" / "verl_ssgrpo.py"
SHARED_MEMORY = Path("/dev/shm")
LIMIT = 540.0
"""Seconds: patience for a busy machine. Most of a run is the start of eight processes."""
PATIENCE = {
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_agent_register_timeout_ms": "120000",
    "RAY_worker_register_timeout_seconds": "240",
}
"""Of Ray with its own processes, which it gives up on after half a minute or a whole one."""
SMALL = (
    *("data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.rollout.n=2"),
    *("rubricem.window=1", "rubricem.reflection.num_candidates=2", "rubricem.reflection.new_tokens=128"),
)


class Run(NamedTuple):
    """A run that has been started."""

    process: "subprocess.Popen[bytes]"
    folder: Path
    log: Path
    ray_folder: Path

    @property
    def saved(self) -> int:
        """The latest step that veRL has written down as saved; 0 before the first."""
        marker = self.folder / "latest_checkpointed_iteration.txt"
        text = marker.read_text() if marker.is_file() else ""
        return int(text) if text.strip() else 0

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The lines of its steps; `rubricem watch` adds scores between them."""
        path = self.folder / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
        return [line for line in lines if "benchmark" not in line]

    def wait(self, seconds: float, until: Callable[["Run"], bool] = lambda run: False) -> int | None:
        """Until it ends, or something has come to be; its exit code, None while it runs."""
        ends = time.monotonic() + seconds
        while self.process.poll() is None and not until(self):
            if time.monotonic() > ends:
                raise TimeoutError(f"the run has not come that far in {seconds:.0f} s; its log ends:\n{self.tail()}")
            time.sleep(0.2)
        return self.process.poll()

    @property
    def sentences(self) -> list[str]:
        """What the command itself has said, in its own name."""
        return [line for line in self.tail(1_000_000).splitlines() if line.startswith("verl_ssgrpo: ")]

    def worker(self, actor: str) -> int:
        """The process of a Ray actor of this run, by the name of its class."""
        raylets = set(ray_processes(self.ray_folder))
        found = (int(path.name) for path in Path("/proc").glob("[0-9]*") if _title(path).startswith(f"ray::{actor}"))
        return next(pid for pid in found if _parent(pid) in raylets)

    def told(self, name: str) -> list[float]:
        """A metric of veRL's own, step by step, from its console; not that of the update on reflections."""
        found = re.findall(rf"(?<!/){name}:(?:np.float64\()?([-+.\de]+)", self.tail(1_000_000))
        return [float(value) for value in found]

    @property
    def probability_gaps(self) -> dict[int, float]:
        """By step, how far the engine's and the trainer's probabilities of a token are apart at most.

        Where reflections are trained on first, the rollouts are older than the weights by that update, as they should
        be: those steps are left out.
        """
        gaps = self.told("training/rollout_probs_diff_max")
        return {line["step"]: gap for line, gap in zip(self.steps, gaps, strict=True) if not line["reflections"]}

    @property
    def divergences(self) -> list[float]:
        """From the first weights, stage by stage, after the first step: a change that never arrived would show."""
        tasks = [line["task"] for line in self.steps[1:] if line["task"]]
        return [stage["kl"] for task in tasks for stage in task["stages"].values()]

    def children(self, pid: int, title: str) -> list[int]:
        """The processes that another has started, by a part of their titles."""
        found = (int(path.name) for path in Path("/proc").glob("[0-9]*") if title in _title(path))
        return [child for child in found if _parent(child) == pid]

    def tail(self, characters: int = 4_000) -> str:
        return self.log.read_text(errors="replace")[-characters:]


@contextmanager
def started(
    folder: Path, policy: Path, *changes: str, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Run]:
    """Start a run of the CPU config; whatever is left of it is killed on the way out."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"run-{time.monotonic_ns()}.log"
    # Short, since Ray makes sockets in it; and its name tells the processes of this run from all others.
    ray_folder = Path(tempfile.mkdtemp(prefix="rv", dir="/tmp"))
    shared_before = set(SHARED_MEMORY.iterdir())
    command = [
        *(sys.executable, str(SCRIPT), "--config-name", "verl_almanac_cpu"),
        *(f"actor_rollout_ref.model.path={policy}", f"trainer.default_local_dir={folder}"),
        *(f"++ray_kwargs.ray_init._temp_dir={ray_folder}", *changes),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            # The path is for Ray's workers, which it starts itself.
            env={**os.environ, **PATIENCE, **environment, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
    try:
        yield Run(process, folder, log, ray_folder)
    finally:
        kill(process, ray_folder)
        shutil.rmtree(ray_folder, ignore_errors=True)
        _remove_unheld(set(SHARED_MEMORY.iterdir()) - shared_before)


def kill(process: "subprocess.Popen[bytes]", ray_folder: Path) -> None:
    """SIGKILL to the driver's group and to this run's Ray, whose workers go with it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    ends = time.monotonic() + 20
    while time.monotonic() < ends and (left := ray_processes(ray_folder)):
        for pid in left:
            _kill_one(pid)
        time.sleep(0.2)


def ray_processes(ray_folder: Path) -> list[int]:
    """The processes of the Ray that lives in that folder: by their command line, or by their working environment."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _mentions(path, str(ray_folder).encode())]


def _mentions(process: Path, name: bytes) -> bool:
    if int(process.name) == os.getpid():
        return False
    try:
        return name in (process / "cmdline").read_bytes() or name in (process / "environ").read_bytes()
    except OSError:
        return False


def _title(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _parent(pid: int) -> int:
    """0 for a process that is gone meanwhile."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _kill_one(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _remove_unheld(segments: set[Path]) -> None:
    """Shared memory that came with the run and that no process holds any more."""
    held = b"".join(_maps(path) for path in Path("/proc").glob("[0-9]*"))
    for segment in segments:
        if segment.name.encode() not in held:
            segment.unlink(missing_ok=True)


def _maps(process: Path) -> bytes:
    try:
        return (process / "maps").read_bytes()
    except OSError:
        return b""
