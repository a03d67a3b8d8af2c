"""Runs the local trainer as a process: reads its config, locks its folder, stops it, reports to the user's trackers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rubricem_agent.wiring.models import requires_extra
from rubricem_env.domain.errors import ConfigError, MissingExtraError, UsageError
from rubricem_env.domain.inputs import parse_assignment
from rubricem_records.line_file import LineFile
from rubricem_records.log_lines import BenchmarkLine, EvaluationLine, LogLine, WarningLine
from rubricem_records.run_lock import lock_folder

ERRORS_FILE = "trainer.err"
_PACKAGE = Path(__file__).parents[1]
CONFIGS = next(folder for folder in (_PACKAGE / "configs", _PACKAGE.parent / "configs") if folder.is_dir())
"""The configs of the package: a wheel has them inside, a clone beside it."""
_DEFAULT_STEPS = 24
_STOP_SECONDS = 60.0
"""Time for the trainer to end after an interrupt."""


def find_config(named: Path) -> Path:
    """The file of a config: a path, or the name of one of the package's, such as `demo_almanac`."""
    shipped = CONFIGS / f"{named}.yaml"
    return shipped if len(named.parts) == 1 and shipped.is_file() and not named.is_file() else named


def read_yaml(named: Path, *, offers: str = "*") -> dict[str, Any]:
    """The mapping in a YAML file; where it is none, raises ConfigError with the package's configs that `offers` matches."""
    path = find_config(named)
    try:
        fields = _parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        reason = " ".join(str(cause).split())
        shipped = sorted(file.stem for file in CONFIGS.glob(f"{offers}.yaml"))
        names = ", ".join(name for name in shipped if not name.startswith("accelerate"))
        raise ConfigError(
            f"cannot read the config {path}: {reason}. Give the path of a YAML file, or a name: {names}."
        ) from cause
    if not isinstance(fields, dict) or not fields:
        held = "is empty" if not fields else f"holds a YAML {type(fields).__name__}"
        raise ConfigError(f"{path} {held}; a config has lines KEY: VALUE, as those in {CONFIGS} do.")
    return fields


def parse_yaml_assignment(text: str, *, example: str) -> tuple[str, Any]:
    """The key of a KEY=VALUE argument, and its value read as YAML.

    Raises:
        ConfigError: the argument is not KEY=VALUE, or the value is not YAML.
    """
    key, value = parse_assignment(text, example=example)
    try:
        return key, _parse_yaml(value)
    except ValueError as cause:
        raise ConfigError(f"the value of {text!r} is not YAML; write KEY=VALUE, such as {example}.") from cause


def _parse_yaml(text: str) -> Any:
    # Imported here: most commands read no YAML.
    import yaml  # type: ignore[import-untyped]

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as cause:
        raise ValueError(str(cause)) from cause


class TrainerCommand(NamedTuple):
    """What to run. The trainer checks the settings; only the folder and the number of steps are read here."""

    config: Path
    changes: tuple[str, ...]
    """KEY=VALUE."""
    out: Path
    steps: int
    module: str = "rubricem_trainers.local.ssgrpo"
    """The module that Python runs."""


def read_trainer_command(config: Path, changes: Sequence[str]) -> TrainerCommand:
    """The command that trains by a config with changes on top.

    Raises:
        ConfigError: the file cannot be read, is of another trainer, or names no folder to write to.
        MissingExtraError: a package for training is not installed.
    """
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise MissingExtraError("torch", "local", "training")
    given = read_yaml(config, offers="[!s]*_almanac")
    for key, module in (("samples", "fine_tuning.sft"), ("num_worlds", "experiments.tiny_policy")):
        if key in given:
            raise ConfigError(f"{config} is of another trainer: python -m rubricem_trainers.{module} --config {config}")
    fields = read_fields(config, changes)
    out, steps = fields.get("out"), fields.get("steps", _DEFAULT_STEPS)
    if not isinstance(out, str) or not out:
        raise ConfigError(f"{config} does not say where to write; add out: FOLDER, or out=FOLDER to the command.")
    if not isinstance(steps, int) or steps < 1:
        raise ConfigError(f"steps is {steps!r}; give a whole number from 1 up.")
    return TrainerCommand(config, tuple(changes), Path(out), steps)


def read_fields(
    config: Path, changes: Iterable[str], *, defaults: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> dict[str, Any]:
    """The settings of a config with KEY=VALUE changes on top; SECTION.KEY=VALUE changes one key of a section.

    `defaults` are the sections that such a change begins with where the config has none.

    Raises:
        ConfigError: the file or a change cannot be read, or the config is one of veRL.
    """
    fields = read_yaml(config)
    if not fields.keys().isdisjoint(("hydra", "actor_rollout_ref")):
        raise ConfigError(f"{config} is a config of veRL, which has a trainer of its own: rubricem train-verl {config}")
    for change in changes:
        if change.startswith("-"):
            raise ConfigError(f"{change} is no option; settings are written KEY=VALUE without dashes, as steps=12.")
        key, value = parse_yaml_assignment(change, example="steps=12")
        *sections, last = key.split(".")
        section = fields
        for name in sections:
            inner = section.get(name) or defaults.get(name, {})
            if not isinstance(inner, Mapping):
                raise ConfigError(f"{change}: {name} is {inner!r}, not a section. Write {name}=VALUE.")
            section[name] = dict(inner)
            section = section[name]
        section[last] = value
    return fields


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module in a process of its own, without importing anything from the current folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def read_local_settings(config: Path, changes: Sequence[str]) -> dict[str, Any]:
    """All settings of a local run as JSON, as it records them; raises ConfigError as the trainer would."""
    local: Any = import_module("rubricem_trainers.local.settings")
    read: Any = import_module("rubricem_trainers.settings").read_settings
    fields: dict[str, Any] = local.with_system(read(config, local.LocalConfig, changes=changes)).model_dump(mode="json")
    return fields


def run_verl(arguments: Sequence[str]) -> int:
    """Train on veRL in this process; returns the exit code."""
    backend: Any = import_module("rubricem_trainers.verl_backend.command")
    code: int = backend.main(arguments)
    return code


class Trainer:
    """A running trainer process. This object and the process both hold the lock of its folder."""

    def __init__(self, out: Path, process: "subprocess.Popen[bytes]", lock: LineFile) -> None:
        self._errors = out / ERRORS_FILE
        self._process = process
        self._lock = lock
        self._is_stopped = False

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
                env=dict(environ),
                stdin=lock.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        return cls(command.out, process, lock)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

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
        """Wait for the end and release the folder; raises UsageError with the trainer's last sentence if it failed."""
        code = self._process.wait()
        self._lock.close()
        if code and not self._is_stopped:
            raise UsageError(self._explain(code))

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


Tracker = Callable[[LogLine], None]
"""Takes each line of a run's log to a destination besides that log."""


def open_trackers(out: Path, chosen: Sequence[str], *, closing: ExitStack) -> list[Tracker]:
    """The chosen trackers by name, which `closing` closes.

    Raises:
        ConfigError: a name is none of a tracker, or MLflow has no server.
        MissingExtraError: its package is not installed.
    """
    if unknown := sorted(set(chosen) - set(_OPENERS)):
        raise ConfigError(f"--track {unknown[0]}: there is no such tracker. Choose {TRACKERS}.")
    return [_OPENERS[name](out, closing) for name in dict.fromkeys(chosen)]


def scalars(line: LogLine) -> dict[str, float]:
    """The numbers of a line by name; absent ones are left out."""
    if isinstance(line, EvaluationLine):
        return {f"held_out/{stage}": value for stage, value in line.held_out.items()} | {"held_out/valid": line.valid}
    if isinstance(line, BenchmarkLine):
        return {f"benchmark/{line.benchmark}": line.score}
    if isinstance(line, WarningLine):
        return {"warning": 1.0}
    values = {f"true/{stage}": value for stage, value in line.true.items()}
    values |= {f"judged/{stage}": value for stage, value in line.judged.items() if value is not None}
    values |= {f"seconds/{part}": value for part, value in line.seconds.items()}
    for phase, metrics in (("task", line.task), ("reflection", line.reflection)):
        if metrics is not None:
            values |= {f"{phase}/loss": metrics.loss, f"{phase}/grad_norm": metrics.grad_norm}
            values |= {f"{phase}/kl": metrics.kl, f"{phase}/entropy": metrics.entropy}
    if line.gradients is not None:
        values["gradient_cosine"] = line.gradients.cosine
    if line.utility is not None:
        values["utility"] = line.utility
    return {**values, "bank": float(line.bank)}


def _open_tensorboard(out: Path, closing: ExitStack) -> Tracker:
    """Event files in `OUT/tensorboard`."""
    with requires_extra("track", "--track tensorboard", package="tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    writer: Any = SummaryWriter(str(out / "tensorboard"))
    closing.callback(writer.close)

    def record(line: LogLine) -> None:
        for name, value in scalars(line).items():
            writer.add_scalar(name, value, line.step)

    return record


def _open_wandb(out: Path, closing: ExitStack) -> Tracker:
    """A run in `OUT/wandb`, offline unless WANDB_MODE says otherwise; `wandb sync` uploads it later."""
    with requires_extra("track", "--track wandb", package="wandb"):
        import wandb  # type: ignore[import-not-found,unused-ignore]
    out.mkdir(parents=True, exist_ok=True)
    # The terminal belongs to the training screen: W&B neither writes to it nor captures it.
    quiet = wandb.Settings(silent=True, console="off")
    mode = os.environ.get("WANDB_MODE", "offline")
    run: Any = wandb.init(mode=mode, dir=str(out), project="rubricem", name=out.name, settings=quiet)
    closing.callback(run.finish)
    return lambda line: run.log(scalars(line), step=line.step)


def _open_trackio(out: Path, closing: ExitStack) -> Tracker:
    """A database in `OUT/trackio`, or where TRACKIO_DIR says; TRACKIO_SPACE_ID names a Space to log to."""
    os.environ.setdefault("TRACKIO_DIR", str(out / "trackio"))
    with requires_extra("track", "--track trackio", package="trackio"):
        import trackio  # type: ignore[import-not-found,unused-ignore]
    space = os.environ.get("TRACKIO_SPACE_ID") or None
    settings = {"space_id": space, "embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
    with redirect_stdout(StringIO()):
        run: Any = trackio.init(project="rubricem", name=out.name, **settings)

    def finish() -> None:
        with redirect_stdout(StringIO()):
            trackio.finish()  # not the run's own, after which the package would end it again at exit

    closing.callback(finish)
    return lambda line: run.log(scalars(line), step=line.step)


def _open_mlflow(out: Path, closing: ExitStack) -> Tracker:
    """A run of the experiment `rubricem` on the server of MLFLOW_TRACKING_URI."""
    if not (server := os.environ.get("MLFLOW_TRACKING_URI", "").strip()):
        raise ConfigError("MLflow needs a server: start `mlflow server` and set MLFLOW_TRACKING_URI to its address.")
    with requires_extra("track", "--track mlflow", package="mlflow-skinny"):
        from mlflow import MlflowClient  # type: ignore[import-not-found,unused-ignore]
        from mlflow.entities import Metric  # type: ignore[import-not-found,unused-ignore]
    client = MlflowClient(tracking_uri=server)
    known = client.get_experiment_by_name("rubricem")
    experiment = known.experiment_id if known else client.create_experiment("rubricem")
    run: str = client.create_run(experiment, run_name=out.name).info.run_id
    closing.callback(client.set_terminated, run)

    def record(line: LogLine) -> None:
        now = int(time.time() * 1_000)
        client.log_batch(run, [Metric(name, value, now, line.step) for name, value in scalars(line).items()])

    return record


_OPENERS = {"tensorboard": _open_tensorboard, "wandb": _open_wandb, "trackio": _open_trackio, "mlflow": _open_mlflow}
TRACKERS = ", ".join(_OPENERS)
