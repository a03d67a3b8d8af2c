"""A trainer as a process of its own: what is to be run, one at a time in a folder, stopped and read from outside.

Where a run is reported besides its own log: TensorBoard, and W&B without the network.
"""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from rubricem_agent.config import parse_yaml_assignment, read_yaml
from rubricem_agent.learn.metrics import EvaluationLine, LogLine, WarningLine
from rubricem_env.domain.errors import ConfigError, MissingExtraError, UsageError

TRAINER = "trainers.local_ssgrpo"
ERRORS_FILE = "trainer.err"
_LOCK_FILE = ".lock"
_DEFAULT_STEPS = 24
_GRACE = 60.0
"""Seconds for an update to end after an interrupt."""


class TrainingPlan(NamedTuple):
    """What to run. The trainer checks the settings; here only the folder and the length are read."""

    config: Path
    changes: tuple[str, ...]
    """KEY=VALUE."""
    out: Path
    steps: int
    module: str = TRAINER
    """What Python runs."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", self.module, "--config", str(self.config), *self.changes]


def read_plan(config: Path, changes: Sequence[str]) -> TrainingPlan:
    """The plan of a config with changes on top.

    Raises:
        ConfigError: the file cannot be read, or names no folder to write to.
        MissingExtraError: training needs packages that are not installed.
    """
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise MissingExtraError("torch", "local", "training")
    fields = read_fields(config, changes)
    out, steps = fields.get("out"), fields.get("steps", _DEFAULT_STEPS)
    if not isinstance(out, str) or not out:
        raise ConfigError(f"{config} does not say where to write; add out: FOLDER, or out=FOLDER to the command.")
    if not isinstance(steps, int) or steps < 1:
        raise ConfigError(f"steps is {steps!r}; give a whole number from 1 up.")
    return TrainingPlan(config, tuple(changes), Path(out), steps)


def read_fields(config: Path, changes: Sequence[str]) -> dict[str, Any]:
    """What a config with changes on top asks for, key by key.

    Raises:
        ConfigError: the file or a change cannot be read.
    """
    dashed = next((change for change in changes if change.startswith("-")), None)
    if dashed is not None:
        raise ConfigError(f"{dashed} is no option; settings are written KEY=VALUE without dashes, such as steps=12.")
    return read_yaml(config) | dict(parse_yaml_assignment(change, example="steps=12") for change in changes)


class Trainer:
    """A running trainer. Holds the folder's lock; so does the process, should this one be killed."""

    def __init__(self, plan: TrainingPlan, process: "subprocess.Popen[bytes]", lock: IO[bytes]) -> None:
        self.plan = plan
        self._process = process
        self._lock = lock
        self._is_stopped = False

    @classmethod
    def start(cls, plan: TrainingPlan, environ: Mapping[str, str]) -> "Trainer":
        """Start the process in a session of its own, so that an interrupt reaches it once, from here.

        Raises:
            ConfigError: the folder cannot be written to, or another process trains in it.
        """
        lock = _lock_folder(plan.out)
        errors = (plan.out / ERRORS_FILE).open("wb")
        with errors:
            process = subprocess.Popen(
                plan.command,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=(lock.fileno(),),
                start_new_session=True,
            )
        return cls(plan, process, lock)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Interrupt it where it runs, and wait; what is not in a checkpoint is done again next time."""
        if not self.is_running:
            return
        self._is_stopped = True
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_GRACE)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self._process.kill()
            self._process.wait()

    def finish(self) -> None:
        """Wait for its end, and free the folder.

        Raises:
            UsageError: it ended otherwise than it should; the message is its own last sentence.
        """
        code = self._process.wait()
        self._lock.close()
        if code and not self._is_stopped:
            raise UsageError(self._explain(code))

    def _explain(self, code: int) -> str:
        path = self.plan.out / ERRORS_FILE
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""]
        if code == 2:
            return lines[-1].removeprefix("local_ssgrpo: ")
        if code < 0:
            name = signal.Signals(-code).name
            memory = " The system may have run out of memory." if name == "SIGKILL" else ""
            return f"the trainer was ended by {name}.{memory} The same command goes on from the last checkpoint."
        return (
            f"the trainer broke: {lines[-1]} (all of it in {path}). The same command goes on from the last checkpoint."
        )


def _lock_folder(folder: Path) -> IO[bytes]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _LOCK_FILE).open("ab")
    except OSError as cause:
        raise ConfigError(f"cannot write to out, {folder}: {cause.strerror}. Choose another folder.") from cause
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as cause:
        lock.close()
        raise ConfigError(f"another process trains in {folder}; wait for it, or choose another `out`.") from cause
    return lock


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT and SIGTERM raise KeyboardInterrupt, here and in what is started here.

    A shell starts background commands with SIGINT ignored, and they would hand that on to their trainers.
    """
    before = {name: signal.signal(name, signal.default_int_handler) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def trainer_environment(environ: Mapping[str, str], *, threads: int | None = None) -> dict[str, str]:
    """The environment of a trainer: threads that wait do not spin, models come from the disk alone."""
    fixed = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **environ, **fixed}


def run_credit_noise(terminal: object, *, rollouts: int, questions: int, chance: float, seed: int) -> None:
    """Run the experiment of `rubricem theory credit`; it prints on the terminal."""
    experiment: Any = import_module("trainers.experiments.credit_noise")
    experiment.run(terminal, rollouts=rollouts, questions=questions, chance=chance, seed=seed)


def current_environment() -> dict[str, str]:
    """This process's environment."""
    return dict(os.environ)


class Tracker(Protocol):
    """Takes in a run's numbers."""

    def record(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoardTracker:
    """Event files in `OUT/tensorboard`."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def record(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WandbTracker:
    """An offline run in `OUT/wandb`; `wandb sync` sends it, if ever."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def record(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


def open_trackers(out: Path, *, tensorboard: bool, wandb: bool) -> list[Tracker]:
    """The trackers that are asked for.

    Raises:
        MissingExtraError: the package of one is not installed.
    """
    trackers: list[Tracker] = []
    if tensorboard:
        trackers.append(_open_tensorboard(out))
    if wandb:
        trackers.append(_open_wandb(out))
    return trackers


def scalars(line: LogLine) -> dict[str, float]:
    """The numbers of a line by name, without what it does not have."""
    if isinstance(line, EvaluationLine):
        return {f"held_out/{stage}": value for stage, value in line.held_out.items()} | {"held_out/valid": line.valid}
    if isinstance(line, WarningLine):
        return {"alarm": 1.0}
    found = {f"true/{stage}": value for stage, value in line.true.items()}
    found |= {f"judged/{stage}": value for stage, value in line.judged.items() if value is not None}
    found |= {f"seconds/{part}": value for part, value in line.seconds.items()}
    for phase, told in (("task", line.task), ("reflection", line.reflection)):
        if told is not None:
            numbers = {"loss": told.loss, "grad_norm": told.grad_norm, "kl": told.kl, "entropy": told.entropy}
            found |= {f"{phase}/{name}": value for name, value in numbers.items()}
    if line.gradients is not None:
        found["gradient_cosine"] = line.gradients.cosine
    if line.utility is not None:
        found["utility"] = line.utility
    return {**found, "bank": float(line.bank)}


def _open_tensorboard(out: Path) -> Tracker:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as cause:
        raise MissingExtraError("tensorboard", "track", "--tensorboard") from cause
    return TensorBoardTracker(SummaryWriter(str(out / "tensorboard")))


def _open_wandb(out: Path) -> Tracker:
    try:
        import wandb  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError as cause:
        raise MissingExtraError("wandb", "track", "--wandb") from cause
    out.mkdir(parents=True, exist_ok=True)
    # The terminal is the training screen's: W&B neither writes to it nor takes in what is written.
    quiet = wandb.Settings(silent=True, console="off")
    return WandbTracker(wandb.init(mode="offline", dir=str(out), project="rubricem", name=out.name, settings=quiet))
