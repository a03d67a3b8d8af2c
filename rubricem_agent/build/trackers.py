"""Where a run is reported besides its own log: TensorBoard, and W&B without the network."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from rubricem_agent.learn.metrics_log import AlarmLine, ExamLine, StepLine
from rubricem_env.domain.errors import MissingExtraError


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


def scalars(line: StepLine | ExamLine | AlarmLine) -> dict[str, float]:
    """The numbers of a line by name, without what it does not have."""
    if isinstance(line, ExamLine):
        return {f"held_out/{stage}": value for stage, value in line.held_out.items()} | {"held_out/valid": line.valid}
    if isinstance(line, AlarmLine):
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
