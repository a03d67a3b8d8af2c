"""Runs the local trainer as a process of its own: names its command, locks its folder, stops it, explains its end."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from rubricem_agent.progress import MARK
from rubricem_agent.wiring.models import MODEL_KEYS
from rubricem_agent.wiring.tools import TOOL_KEYS
from rubricem_agent.yaml_config import read_fields, read_yaml
from rubricem_env.domain.errors import ConfigError, MissingExtraError, UsageError
from rubricem_env.domain.inputs import read_text
from rubricem_env.llm.keys import without_keys
from rubricem_records.files.line_file import LineFile
from rubricem_records.files.run_lock import lock_folder
from rubricem_records.runs.trainer_errors import ERRORS_FILE, note_failure

_DEFAULT_STEPS = 24
_OTHER_TRAINERS = {
    "samples": "python -m rubricem_trainers.fine_tuning.sft",
    "num_worlds": "python -m research.tiny_policy",
}
"""The command of each other trainer, by a setting that only its configs have."""
_STOP_SECONDS = 60.0
"""Time for the trainer to end after an interrupt."""


class TrainerCommand(NamedTuple):
    """What to run. The trainer checks the settings; only the folder and the number of steps are read here."""

    config: Path
    changes: tuple[str, ...]
    """KEY=VALUE."""
    out: Path
    steps: int
    module: str = "rubricem_trainers.local"
    """The module that Python runs."""
    keys: tuple[str, ...] = ()
    """The variables named like keys that it gets."""


def read_trainer_command(config: Path, changes: Sequence[str]) -> TrainerCommand:
    """The command that trains by a config with changes on top.

    Raises:
        ConfigError: the file cannot be read, is of another trainer, or names no folder to write to.
        MissingExtraError: a package for training is not installed.
    """
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise MissingExtraError("torch", "local", "training")
    given = read_yaml(config, offers="[!s]*_almanac")
    for key, other in _OTHER_TRAINERS.items():
        if key in given:
            raise ConfigError(f"{config} is of another trainer: {other} --config {config}")
    fields = read_fields(config, changes)
    out, steps = fields.get("out"), fields.get("steps", _DEFAULT_STEPS)
    if not isinstance(out, str) or not out:
        raise ConfigError(f"{config} does not say where to write; add out: FOLDER, or out=FOLDER to the command.")
    if not isinstance(steps, int) or steps < 1:
        raise ConfigError(f"steps is {steps!r}; give a whole number from 1 up.")
    return TrainerCommand(config, tuple(changes), Path(out), steps, keys=_needed_keys(fields))


def _needed_keys(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """The variables that may hold keys of a run's judges and tools; none where both are the almanac's own.

    The settings may name further ones, of MCP servers.
    """
    if not fields.keys() & {"judge", "tools", "data"}:
        return ()
    written = json.dumps(fields, default=str)
    if isinstance(tools := fields.get("tools"), str) and Path(tools).is_file():
        written += read_text(Path(tools), "tool settings")
    return (*MODEL_KEYS, *TOOL_KEYS, *re.findall(r"\w+", written))


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module in a process of its own, without importing anything from the current folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


class Trainer:
    """A running trainer process. This object and the process both hold the lock of its folder."""

    def __init__(self, out: Path, process: "subprocess.Popen[bytes]", lock: LineFile) -> None:
        self._out = out
        self._errors = out / ERRORS_FILE
        self._process = process
        self._lock = lock
        self._is_stopped = False
        self._read = 0

    @classmethod
    def start(cls, command: TrainerCommand, environ: Mapping[str, str]) -> "Trainer":
        """Start the process in its own session, so that an interrupt of the terminal does not reach it twice.

        Raises:
            ConfigError: the folder cannot be written to, or another process trains in it.
        """
        lock = lock_folder(command.out)
        with (command.out / ERRORS_FILE).open("wb") as errors:
            process = subprocess.Popen(
                python_command(command.module, "--config", str(command.config), *command.changes),
                env=without_keys(environ, but=command.keys),
                stdin=lock.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        return cls(command.out, process, lock)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def new_progress(self) -> list[str]:
        """The lines of progress that the process has written since the last call."""
        with self._errors.open("rb") as errors:
            errors.seek(self._read)
            whole, end, _ = errors.read().rpartition(b"\n")
        self._read += len(whole + end)
        lines = whole.decode("utf-8", "replace").splitlines()
        return [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]

    def stop(self) -> None:
        """Interrupt the process and wait; steps after the last checkpoint are repeated on resume."""
        if not self.is_running:
            return
        self._is_stopped = True
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_STOP_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self._process.kill()
            self._process.wait()

    def finish(self) -> None:
        """Wait for the end and release the folder.

        Raises:
            UsageError: it failed; the message is its last sentence, which stands in its errors too.
        """
        code = self._process.wait()
        self._lock.close()
        if code and not self._is_stopped:
            sentence = self._explain(code)
            note_failure(self._out, sentence)
            raise UsageError(sentence)

    def _explain(self, code: int) -> str:
        lines = self._errors.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""]
        if code == 2:
            return lines[-1].removeprefix("local_ssgrpo: ")
        resume = "The same command resumes from the last checkpoint."
        if code < 0:
            name = signal.Signals(-code).name
            memory = " The system may have run out of memory." if name == "SIGKILL" else ""
            return f"the trainer was ended by {name}.{memory} {resume}"
        return f"the trainer failed: {lines[-1]} (full output in {self._errors}). {resume}"


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it SIGINT and SIGTERM raise KeyboardInterrupt, also in processes started there.

    A shell starts background commands with SIGINT ignored, and their trainers would inherit that.
    """
    before = {name: signal.signal(name, signal.default_int_handler) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def trainer_environment(*, threads: int | None = None) -> dict[str, str]:
    """The environment of a trainer: waiting threads do not spin, and models are read from the disk only."""
    fixed = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    offline = {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**offline, **os.environ, **fixed}
