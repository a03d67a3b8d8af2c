"""A rollout, one recorded attempt at a question, and the journal that keeps finished rollouts on disk.

A failure of the policy or the tools is a field of the rollout, not an exception. The journal is a file of lines. Its
first line names the run by a fingerprint of its settings. A kill leaves at most the last line truncated, which is
dropped with a warning. Lines are not forced to the disk one by one, because that takes some 8 ms during which all
other episodes of the run wait; `sync` does it once a run.
"""

import hashlib
import warnings
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field

from rubricem_agent.files import MAKE_ROOM, LineFile, writing
from rubricem_agent.rollout.tokens import RolloutTokens
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import validating
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.reading import Reading, read_trajectory

ROLLOUT_VERSION = 1


class Rollout(Frozen):
    """One attempt at one question by one policy."""

    version: Annotated[int, Field(ge=ROLLOUT_VERSION, le=ROLLOUT_VERSION)] = ROLLOUT_VERSION
    trajectory: Trajectory
    policy: Text
    prompt_hash: Text = ""
    """Hash of the prompt that the policy was given."""
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

    @cached_property
    def reading(self) -> Reading:
        """The parsed trajectory. `run_episode` provides it; a rollout from a file is parsed on first use."""
        return read_trajectory(self.trajectory)

    def with_reading(self, reading: Reading) -> "Rollout":
        """This rollout, with the reading of its trajectory provided by the caller."""
        self.__dict__["reading"] = reading
        return self


JOURNAL_VERSION = 1


RolloutIndex = tuple[str, int, int]
"""Identifies a rollout of a run: the question's key, the occurrence of the question, the attempt."""


def attempt_seed(seed: int, index: RolloutIndex) -> int:
    """The seed of one attempt: it depends on the attempt's index, not on the order of running."""
    query_key, occurrence, attempt = index
    key = int.from_bytes(hashlib.sha256(query_key.encode()).digest()[:8])
    state = np.random.SeedSequence([seed, key, occurrence, attempt]).generate_state(1)
    return int(state[0])


class _JournalHeader(Frozen):
    """The first line. A newer release may say more in it, and is still known as newer."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    journal: int
    fingerprint: Text = ""


class _JournalLine(Frozen):
    place: RolloutIndex
    rollout: Rollout


class RolloutJournal:
    """The journal of one run. One process writes it at a time."""

    def __init__(self, path: Path, finished: Mapping[RolloutIndex, Rollout]) -> None:
        self._file = LineFile(path)
        self._finished = dict(finished)

    @classmethod
    def open(cls, path: Path, *, fingerprint: str) -> "RolloutJournal":
        """Begin a journal, or resume the one in the file.

        Raises:
            FileFormatError: the file is of another run or a newer version, or damaged before its last line.
        """
        if not path.exists() or path.stat().st_size == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            header = _JournalHeader(journal=JOURNAL_VERSION, fingerprint=fingerprint)
            path.write_text(header.model_dump_json() + "\n", encoding="utf-8")
            return cls(path, {})
        file = LineFile(path)
        dropped = file.repair()
        if dropped:
            message = f"{path} ends in a truncated line of {dropped} bytes; it is dropped."
            warnings.warn(message, stacklevel=2)
        lines = [line.decode("utf-8", "replace") for line in file.read()]
        _check_header(path, lines[0] if lines else "", fingerprint=fingerprint)
        finished = {}
        for number, line in enumerate(lines[1:], 2):
            with validating(f"{path}, line {number} is not a rollout", "Remove the line to resume."):
                record = _JournalLine.model_validate_json(line)
            finished[record.place] = record.rollout
        return cls(path, finished)

    @property
    def finished(self) -> Mapping[RolloutIndex, Rollout]:
        """The rollouts that need not be repeated: the last one of each index, unless it failed."""
        return {index: rollout for index, rollout in self._finished.items() if rollout.is_valid}

    def append(self, index: RolloutIndex, rollout: Rollout) -> None:
        """Add a rollout; a later one of the same index replaces it.

        Raises:
            ConfigError: the line does not fit on the disk; the file is unchanged.
        """
        line = _JournalLine(place=index, rollout=rollout).model_dump_json()
        with writing(self._file.path, MAKE_ROOM):
            self._file.append([line.encode()])
        self._finished[index] = rollout

    def sync(self) -> None:
        """Wait until all lines are on the disk."""
        self._file.sync()


def _check_header(path: Path, line: str, *, fingerprint: str) -> None:
    with validating(f"{path} is not a journal of rollouts", "Choose another file, or remove it."):
        header = _JournalHeader.model_validate_json(line)
    if header.journal > JOURNAL_VERSION:
        raise FileFormatError(
            f"{path} is a journal of version {header.journal}; this release reads up to {JOURNAL_VERSION}. Upgrade "
            "rubricem."
        )
    if header.fingerprint != fingerprint:
        raise FileFormatError(
            f"{path} belongs to a run with other settings ({header.fingerprint}, this one is {fingerprint}). Use "
            "another file, or the settings of that run."
        )
