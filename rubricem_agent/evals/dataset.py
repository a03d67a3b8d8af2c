"""The data of a benchmark: examples for the agent, and gold for judges and scorers.

What the agent may see (`Example`) is kept apart from what only judges and scorers may see (`Gold`). A benchmark file
that is missing, of another version or malformed raises FileFormatError.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic import ConfigDict

from rubricem_agent.data.chatml import ChatTurn
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import AnswerFormat


class Example(Frozen):
    """Everything that the agent is given. It never contains gold answers, rubrics, root urls or answer types."""

    id: Text
    prompt_text: Text
    turns: tuple[ChatTurn, ...] = ()
    """The conversation behind `prompt_text`, where the benchmark has one."""


class Gold(Frozen):
    """Base of what scores an example, usually the row of the file. Other columns of the file are ignored."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    id: Text

    def accepted_answers(self) -> tuple[str, ...]:
        """Every answer that counts as right; none where rubrics score the example."""
        return ()

    def lacks(self) -> str:
        """What scoring needs and the files do not have, such as "criteria"; empty where nothing is missing."""
        return ""


@dataclass(frozen=True)
class Dataset:
    """Examples in file order, their gold by id, and the path and hash of the file of both."""

    examples: tuple[Example, ...]
    gold: Mapping[str, Gold]
    path: Path
    sha256: str
    formats: Mapping[str, AnswerFormat] = field(default_factory=dict)
    """Answer formats by example id, where the examples of a benchmark differ in it."""


class DataPaths(NamedTuple):
    """The files of a benchmark. Only DeepResearchBench needs more than one."""

    path: Path | None = None
    criteria: Path | None = None
    references: Path | None = None


def required(path: Path | None, what: str, *, option: str = "--data FILE") -> Path:
    """The path of a file that must be given. Raises UsageError where the path is missing."""
    if path is None:
        raise UsageError(f"{what} needs a file that was not named. Give it with {option}.")
    return path
