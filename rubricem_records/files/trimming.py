"""Cuts a run's log back to the step that the run resumes from."""

import json
import math
from pathlib import Path

from rubricem_records.files.atomic_files import write_atomic, writing


def trim_log(path: Path, step: int) -> None:
    """Drop the lines of steps after `step`, which the resumed run writes again, and lines that are not complete JSON.

    Raises:
        ConfigError: the disk refuses; the log is unchanged.
    """
    if not path.is_file():
        return
    way_out = "make room or make the folder writable, then run the same command again to resume."
    with writing(path, f"The steps after {step} are still in the log, which is unchanged; {way_out}"):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        write_atomic(path, "".join(f"{line}\n" for line in lines if _step_of(line) <= step))


def _step_of(line: str) -> float:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf
