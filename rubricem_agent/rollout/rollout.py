"""A rollout: one attempt with a policy, as it is kept; a failure of the world is part of it, not a crash.

Finished rollouts on disk, one line each, only ever appended: what a killed run had finished is not done again.

The first line names the run by a fingerprint of its settings. A line is whole once its line break is written: a
kill leaves at most the last one broken, which is dropped with a warning. A line is handed to the system in one piece
and outlives the process; `sync`, once a run, makes it outlive the power. No fsync for each line: it takes some 8 ms, in
which all the other episodes of the run stand still.
"""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field, ValidationError

from rubricem_agent.files import LineFile
from rubricem_agent.rollout.tokens import RolloutTokens
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory import Trajectory, first_problem
from rubricem_env.llm.usage import Usage

ROLLOUT_VERSION = 1


class Rollout(Frozen):
    """One attempt at one question by one policy."""

    version: Annotated[int, Field(ge=ROLLOUT_VERSION, le=ROLLOUT_VERSION)] = ROLLOUT_VERSION
    trajectory: Trajectory
    policy: Text
    prompt_hash: Text = ""
    """Of the prompt that the policy was given."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    usage: Usage = Usage()
    tokens: RolloutTokens | None = None
    """None for a policy without token mode."""
    failure: Text = ""
    """Why the episode was abandoned, in one sentence; empty where it was not."""

    @property
    def is_valid(self) -> bool:
        """Whether it counts: an episode that a limit ended does, one that the infrastructure ended does not."""
        return not self.failure


JOURNAL_VERSION = 1


class TruncatedJournalWarning(UserWarning):
    """The last line of a journal was broken by a kill, and was dropped."""


class RolloutIndex(NamedTuple):
    """Which rollout of a run: the question by its key, which of its occurrences, which attempt."""

    query_key: str
    occurrence: int
    attempt: int


class RolloutJournal:
    """The journal of one run. One process writes it at a time."""

    def __init__(self, path: Path, finished: Mapping[RolloutIndex, Rollout]) -> None:
        self._file = LineFile(path)
        self._finished = dict(finished)

    @classmethod
    def open(cls, path: Path, *, fingerprint: str) -> "RolloutJournal":
        """Begin a journal, or go on with the one that is there.

        Raises:
            FileFormatError: the file is of another run or a newer version, or damaged before its last line.
        """
        if not path.exists() or path.stat().st_size == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            header = {"journal": JOURNAL_VERSION, "fingerprint": fingerprint}
            path.write_text(json.dumps(header) + "\n", encoding="utf-8")
            return cls(path, {})
        lines = _whole_lines(path)
        _check_header(path, lines[0] if lines else "", fingerprint=fingerprint)
        return cls(path, dict(_read_line(path, line, number=number) for number, line in enumerate(lines[1:], 2)))

    @property
    def finished(self) -> Mapping[RolloutIndex, Rollout]:
        """What need not be done again: the last rollout of each place, unless it failed."""
        return {place: rollout for place, rollout in self._finished.items() if rollout.is_valid}

    def append(self, place: RolloutIndex, rollout: Rollout) -> None:
        """Keep a rollout; a later one of the same place replaces it.

        Raises:
            FileFormatError: the line does not fit on the disk; nothing of it is left there.
        """
        record = {"place": place, "rollout": rollout.model_dump(mode="json")}
        line = json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        try:
            self._file.append([line.encode()])
        except OSError as cause:
            raise FileFormatError(
                f"cannot write a whole line to {self._file.path}: {cause}. Make room, and run again."
            ) from cause
        self._finished[place] = rollout

    def sync(self) -> None:
        """Wait until all lines are on the disk."""
        self._file.sync()


def _whole_lines(path: Path) -> list[str]:
    """The lines that end; what follows the last line break is cut off the file."""
    file = LineFile(path)
    dropped = file.repair()
    if dropped:
        warnings.warn(
            TruncatedJournalWarning(f"{path} ends in a truncated line of {dropped} bytes; it is dropped."), stacklevel=3
        )
    return [line.decode("utf-8", "replace") for line in file.read()]


def _check_header(path: Path, line: str, *, fingerprint: str) -> None:
    header = _parse(path, line, number=1) if line else {}
    version = header.get("journal")
    if type(version) is not int:
        raise FileFormatError(f"{path} is not a journal of rollouts; choose another file, or remove it.")
    if version > JOURNAL_VERSION:
        raise FileFormatError(
            f"{path} is a journal of version {version}; this release reads up to {JOURNAL_VERSION}. Upgrade rubricem."
        )
    if header.get("fingerprint") != fingerprint:
        raise FileFormatError(
            f"{path} belongs to a run with other settings ({header.get('fingerprint')}, this one is {fingerprint}). "
            "Use another file, or the settings of that run."
        )


def _parse(path: Path, line: str, *, number: int) -> dict[str, object]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as cause:
        raise FileFormatError(f"{path}, line {number} is not JSON: {cause}. Remove the line to go on.") from cause
    if not isinstance(record, dict):
        raise FileFormatError(f"{path}, line {number} is no JSON object. Remove the line to go on.")
    return record


def _read_line(path: Path, line: str, *, number: int) -> tuple[RolloutIndex, Rollout]:
    record = _parse(path, line, number=number)
    place, fields = record.get("place"), record.get("rollout")
    if not (isinstance(place, list) and len(place) == len(RolloutIndex._fields)):
        raise FileFormatError(f"{path}, line {number} does not say which rollout it is. Remove the line to go on.")
    try:
        # Not strict: JSON has lists for tuples and strings for enums.
        return RolloutIndex(*place), Rollout.model_validate(fields, strict=False)
    except ValidationError as cause:
        raise FileFormatError(f"{path}, line {number} is not a rollout: {first_problem(cause)}") from cause
