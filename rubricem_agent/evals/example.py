"""A benchmark as it is loaded: what the agent may see, and apart from it what only judge and scorer may see."""

from collections.abc import Mapping
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from pydantic import ConfigDict

from rubricem_env.domain.base import Frozen, Text


class Turn(Frozen):
    """One message of a conversation that ends with a question to the agent."""

    model_config = ConfigDict(extra="ignore")

    role: Text
    content: Text


class Example(Frozen):
    """All that the agent is given. No gold answer, rubric, root url or answer type ever enters it."""

    id: Text
    prompt_text: Text
    turns: tuple[Turn, ...] = ()
    """The conversation behind `prompt_text`, where the benchmark has one."""


class Gold(Frozen):
    """Base of what scores an example. Subclasses add the fields of their benchmark."""

    id: Text
    canary: Text | None = None
    """The mark by which leaked benchmark text is recognised. It is kept with the record."""


class SourceFile(NamedTuple):
    """The file that examples were read from, for the run's manifest."""

    path: Path
    sha256: str
    rows: int


GoldT = TypeVar("GoldT", bound=Gold)


class Benchmark(NamedTuple, Generic[GoldT]):
    """Examples in file order, their gold by id, and where both came from."""

    examples: tuple[Example, ...]
    gold: Mapping[str, GoldT]
    source: SourceFile
