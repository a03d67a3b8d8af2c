"""A run's metrics.jsonl: a line for each step and each examination, written by the trainer and read back by everyone else.

How a step's rollouts are written, whatever they are worth: what the collapse detectors watch.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field, ValidationError

from rubricem_agent.files import LineFile
from rubricem_agent.rollout.rollout import Rollout
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.trajectory import ToolCall, first_problem
from rubricem_env.scaffold.grammar import ValidationMode
from rubricem_env.scaffold.reading import read_trajectory

METRICS_FILE = "metrics.jsonl"
SETTINGS_FILE = "config.json"
"""The settings of the run, as its last start had them."""


class Line(Frozen):
    """What a reader wants to know of a line, which may say more."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, strict=False)


class StageTold(Line):
    """Means over the policy's tokens of one stage."""

    tokens: int
    entropy: float
    kl: float
    loss_share: float = 0.0


class UpdateTold(Line):
    """One optimiser step."""

    loss: float
    grad_norm: float
    tokens: int
    stages: dict[str, StageTold]

    @property
    def entropy(self) -> float:
        """Nats a token, over all stages."""
        return sum(stage.tokens * stage.entropy for stage in self.stages.values()) / max(1, self._counted)

    @property
    def kl(self) -> float:
        """From the reference, nats a token, over all stages."""
        return sum(stage.tokens * stage.kl for stage in self.stages.values()) / max(1, self._counted)

    @property
    def _counted(self) -> int:
        return sum(stage.tokens for stage in self.stages.values())


class HabitsTold(Line):
    """How the rollouts of a step were written; see `rubricem_agent/learn/metrics.py`."""

    answer_words: float
    repeated_calls: float
    valid: float
    policy_tokens: int


class GradientsTold(Line):
    """The task's gradient against the reflections', at the same weights."""

    cosine: float
    task_norm: float
    reflection_norm: float


class StepLine(Line):
    """A training step."""

    step: int
    encounter: str
    true: dict[str, float]
    judged: dict[str, float | None]
    trained_rollouts: int = 0
    task: UpdateTold | None = None
    reflection: UpdateTold | None = None
    utility: float | None = None
    bank: int = 0
    habits: HabitsTold | None = None
    """None in the logs of runs that did not count them."""
    gradients: GradientsTold | None = None
    seconds: dict[str, float] = Field(default_factory=dict)


class ExamLine(Line):
    """The policy on held-out questions, by truth."""

    step: int
    held_out: dict[str, float]
    valid: float


class AlarmLine(Line):
    """Something that a person should look at."""

    step: int
    alarm: str


class RunLog(NamedTuple):
    """A run as its log tells it; each list in the order of steps, the latest line of a step counts."""

    steps: list[StepLine]
    exams: list[ExamLine]
    alarms: list[AlarmLine]


def read_log(folder: Path) -> RunLog:
    """The log in a run's folder. A last line that a killed run left half written is passed over.

    Raises:
        FileFormatError: there is no log, or a line that is not the last cannot be read.
    """
    path = folder / METRICS_FILE
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as cause:
        raise FileFormatError(
            f"{folder} holds no {METRICS_FILE}, so it is no run's folder ({cause.strerror}); give the folder that the "
            "config names as `out`, after the first step."
        ) from cause
    return sort_lines([_read_line(line, f"{path}:{number}") for number, line in enumerate(_whole_lines(text), 1)])


def sort_lines(lines: list[StepLine | ExamLine | AlarmLine]) -> RunLog:
    """The lines by kind: a step and an examination of each step, and all alarms."""
    steps = {line.step: line for line in lines if isinstance(line, StepLine)}
    exams = {line.step: line for line in lines if isinstance(line, ExamLine)}
    alarms = dict.fromkeys(line for line in lines if isinstance(line, AlarmLine))
    return RunLog(
        [steps[step] for step in sorted(steps)],
        [exams[step] for step in sorted(exams)],
        sorted(alarms, key=lambda line: line.step),
    )


def parse_line(fields: Mapping[str, Any]) -> StepLine | ExamLine | AlarmLine:
    """One line by what it holds; pydantic's ValidationError where it holds nothing known."""
    if "held_out" in fields:
        return ExamLine.model_validate(fields)
    return AlarmLine.model_validate(fields) if "alarm" in fields else StepLine.model_validate(fields)


def append_line(path: Path, fields: Mapping[str, Any]) -> None:
    """Add a line.

    Raises:
        UsageError: the disk refuses.
    """
    try:
        LineFile(path).append([json.dumps(fields, allow_nan=False).encode()])
    except OSError as cause:
        raise UsageError(
            f"cannot write to {path}: {cause.strerror or cause}. Make room; the same command goes on from the last "
            "checkpoint."
        ) from cause


class LogFollower:
    """Reads a log that is being written. A resumed run writes some steps again: those count as new."""

    def __init__(self, folder: Path, *, skip_present: bool) -> None:
        self._path = folder / METRICS_FILE
        self._seen: set[str] = set(self._lines()) if skip_present else set()

    def new_lines(self) -> list[StepLine | ExamLine | AlarmLine]:
        """What has been written since the last call, in its order; nothing while there is no log."""
        fresh = [line for line in self._lines() if line not in self._seen]
        self._seen.update(fresh)
        return [_read_line(line, str(self._path)) for line in fresh]

    def _lines(self) -> list[str]:
        try:
            return _whole_lines(self._path.read_text(encoding="utf-8", errors="replace"))
        except (FileNotFoundError, NotADirectoryError):
            return []


def _whole_lines(text: str) -> list[str]:
    return text[: text.rfind("\n") + 1].splitlines()


def _read_line(line: str, where: str) -> StepLine | ExamLine | AlarmLine:
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict):
            raise FileFormatError(
                f"{where} holds no JSON object; it is no line of a run. Delete it, or restore the file."
            )
        return parse_line(fields)
    except ValidationError as cause:
        raise FileFormatError(f"{where} is no line of a run {first_problem(cause)}") from cause
    except json.JSONDecodeError as cause:
        raise FileFormatError(f"{where} is not JSON: {cause}. Delete the line, or restore the file.") from cause


class RolloutStatistics(NamedTuple):
    """Over all rollouts of a step."""

    answer_words: float
    """Of an answer, on average; an attempt without one has an answer of 0 words."""
    repeated_calls: float
    """The share of calls that repeat an earlier one of the same attempt; 0 without calls."""
    valid: float
    """The share of attempts that strict mode accepts."""
    policy_tokens: int
    """Sampled in all."""


def measure_habits(groups: Sequence[Sequence[Rollout]]) -> RolloutStatistics:
    """The habits of a step's groups, abandoned rollouts included."""
    rollouts = [rollout for group in groups for rollout in group]
    readings = [read_trajectory(rollout.trajectory) for rollout in rollouts]
    calls = [[turn.call for turn in reading.turns if turn.call is not None] for reading in readings]
    return RolloutStatistics(
        answer_words=float(np.mean([len((reading.answer or "").split()) for reading in readings])),
        repeated_calls=sum(map(count_repeats, calls)) / max(1, sum(map(len, calls))),
        valid=float(np.mean([not reading.rejects(ValidationMode.STRICT) for reading in readings])),
        policy_tokens=sum(int(rollout.tokens.policy_mask.sum()) for rollout in rollouts if rollout.tokens is not None),
    )


def count_repeats(calls: Sequence[ToolCall]) -> int:
    """Calls that ask the same thing as an earlier one."""
    return len(calls) - len({call.identity for call in calls})
