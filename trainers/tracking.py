"""Sends each line of a run's log to the user's trackers: TensorBoard, Weights & Biases, Trackio or MLflow."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

from rubricem_agent.wiring.models import requires_extra
from rubricem_env.domain.errors import ConfigError
from rubricem_records.runs.log_lines import BenchmarkLine, EvaluationLine, LogLine, WarningLine

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
        tensorboard = import_module("torch.utils.tensorboard")
    writer: Any = tensorboard.SummaryWriter(str(out / "tensorboard"))
    closing.callback(writer.close)

    def record(line: LogLine) -> None:
        for name, value in scalars(line).items():
            writer.add_scalar(name, value, line.step)

    return record


def _open_wandb(out: Path, closing: ExitStack) -> Tracker:
    """A run in `OUT/wandb`, offline unless WANDB_MODE says otherwise; `wandb sync` uploads it later."""
    with requires_extra("track", "--track wandb", package="wandb"):
        wandb = import_module("wandb")
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
        trackio = import_module("trackio")
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
        mlflow = import_module("mlflow")
        metric_of = import_module("mlflow.entities").Metric
    client = mlflow.MlflowClient(tracking_uri=server)
    known = client.get_experiment_by_name("rubricem")
    experiment = known.experiment_id if known else client.create_experiment("rubricem")
    run: str = client.create_run(experiment, run_name=out.name).info.run_id
    closing.callback(client.set_terminated, run)

    def record(line: LogLine) -> None:
        now = int(time.time() * 1_000)
        client.log_batch(run, [metric_of(name, value, now, line.step) for name, value in scalars(line).items()])

    return record


_OPENERS = {"tensorboard": _open_tensorboard, "wandb": _open_wandb, "trackio": _open_trackio, "mlflow": _open_mlflow}
TRACKERS = ", ".join(_OPENERS)
