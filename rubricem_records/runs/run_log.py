"""A run's metrics.jsonl: a trainer appends lines to it, everyone else reads it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import refuse_other_than_file, validating
from rubricem_records.files.atomic_files import writing
from rubricem_records.files.line_file import LineFile
from rubricem_records.runs.log_lines import BenchmarkLine, EvaluationLine, LogLine, StepLine, WarningLine, parse_line

METRICS_FILE = "metrics.jsonl"

_FIELDS = TypeAdapter(dict[str, Any])


class RunLog(NamedTuple):
    """The log of a run; each list in the order of steps, the latest line of a step counts."""

    steps: list[StepLine]
    evaluations: list[EvaluationLine]
    warnings: list[WarningLine]
    benchmarks: Sequence[BenchmarkLine] = ()


def read_log(folder: Path) -> RunLog:
    """The log in a run's folder. A truncated last line is skipped.

    Raises:
        FileFormatError: there is no log, or another line cannot be read.
    """
    path = folder / METRICS_FILE
    try:
        written = complete_lines(path)
    except OSError as cause:
        raise FileFormatError(
            f"{folder} holds no {METRICS_FILE}, so it is no run's folder ({cause.strerror}); give the folder that the "
            "config names as `out`, after the first step."
        ) from cause
    lines = [read_line(line, f"{path}:{number}") for number, line in enumerate(written, 1)]
    steps = {line.step: line for line in lines if isinstance(line, StepLine)}
    evaluations = {line.step: line for line in lines if isinstance(line, EvaluationLine)}
    benchmarks = {(line.step, line.benchmark): line for line in lines if isinstance(line, BenchmarkLine)}
    warnings = dict.fromkeys(line for line in lines if isinstance(line, WarningLine))
    return RunLog(
        [steps[step] for step in sorted(steps)],
        [evaluations[step] for step in sorted(evaluations)],
        sorted(warnings, key=lambda line: line.step),
        [benchmarks[at] for at in sorted(benchmarks)],
    )


def answers_by_step(logs: Sequence[RunLog]) -> dict[int, list[float]]:
    """The held-out answers of each run, at the steps at which all runs were evaluated."""
    curves = [{line.step: line.held_out["answer"] for line in log.evaluations} for log in logs]
    shared = sorted(set.intersection(*map(set, curves))) if curves else []
    return {step: [curve[step] for curve in curves] for step in shared}


def append_line(path: Path, fields: Mapping[str, Any]) -> None:
    """Add a line.

    Raises:
        ConfigError: the disk refuses.
    """
    with writing(path, "Make room; the same command resumes from the last checkpoint."):
        LineFile(path).append([json.dumps(fields, allow_nan=False).encode()])


def complete_lines(path: Path) -> list[str]:
    refuse_other_than_file(path, "log")
    text = path.read_text(encoding="utf-8", errors="replace")
    return text[: text.rfind("\n") + 1].splitlines()


def read_line(line: str, where: str) -> LogLine:
    with validating(f"{where} is no line of a run", "Delete the line, or restore the file."):
        return parse_line(_FIELDS.validate_json(line))
