"""The settings of teacher data: who writes, from which questions, what is kept and what it may cost."""

import re
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.limiter import Rates
from rubricem_env.llm.usage import Ceilings
from rubricem_env.world.faults import Faults

SCRIPTED = "scripted"
GEMINI = "gemini"
GEMINI_BATCH = "gemini-batch"
OPENAI = "openai"
DIRECTORY = "directory"
_WITH_MODEL = (GEMINI, GEMINI_BATCH, OPENAI)
_WAY_OUT = "Use scripted, gemini:MODEL, gemini-batch:MODEL, openai:MODEL@URL or directory:PATH."
_SPEC = re.compile(r"(?P<kind>[a-z-]+)(?::(?P<model>[^@\s]+)(?:@(?P<url>\S+))?)?")

Count = Annotated[int, Field(ge=1)]


class TeacherSpec(NamedTuple):
    """A teacher as it is named on the command line."""

    kind: str
    model: str = ""
    """The path, for a directory."""
    url: str = ""

    @property
    def is_batch(self) -> bool:
        """Whether whole rounds go out at once."""
        return self.kind in (GEMINI_BATCH, DIRECTORY, SCRIPTED)

    @property
    def costs(self) -> bool:
        """Whether its calls may cost money."""
        return self.kind != SCRIPTED


class TeacherConfig(Frozen):
    """A generation run; the defaults are the paper's."""

    questions: Path | None = None
    """None for the training questions of the shipped almanac."""
    out: Path
    """The journal, the samples, what was rejected and why."""
    teacher: str = SCRIPTED
    tools: Path | None = None
    """A TOML file of tool settings; None searches the shipped corpus."""
    faults: Faults = Faults()
    """Of the scripted teacher."""
    flat: bool = False
    """Scripted teacher: think and act without the scaffold."""
    seed: int = 0
    limit: Count | None = None
    """Take only so many questions, from the first."""
    max_rounds: Annotated[int, Field(ge=2)] = 10
    max_tokens: Count = 16_384
    max_unknown_citations: Annotated[int, Field(ge=0)] = 0
    concurrency: Count = 64
    """Episodes at once, for a live teacher."""
    tokenizer: str = ""
    """The student's, as transformers loads it, to count tokens exactly; empty counts four bytes a token."""
    shards: Count = 1
    """Processes on Ray; 1 runs in this one."""
    rates: Rates = Rates()
    ceilings: Ceilings = Ceilings()
    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds for one call."""


def parse_teacher(text: str) -> TeacherSpec:
    """A teacher's name, taken apart.

    Raises:
        ConfigError: there is no such teacher, or a part of the name is missing or not a web address.
    """
    if text.startswith(f"{DIRECTORY}:") and len(text) > len(DIRECTORY) + 1:
        return TeacherSpec(DIRECTORY, text.removeprefix(f"{DIRECTORY}:"))
    found = _SPEC.fullmatch(text.strip())
    spec = TeacherSpec(*(part or "" for part in found.groups())) if found else TeacherSpec("")
    if spec.kind not in (SCRIPTED, *_WITH_MODEL):
        raise ConfigError(f"there is no teacher {text!r}. {_WAY_OUT}")
    if bool(spec.model) != (spec.kind in _WITH_MODEL) or (spec.kind == OPENAI and not spec.url):
        raise ConfigError(f"the teacher {text!r} has a part too many or too few. {_WAY_OUT}")
    address = urlsplit(spec.url)
    if spec.url and (address.scheme not in ("http", "https") or not address.hostname):
        raise ConfigError(f"the teacher's URL is {spec.url!r}; it must start with http:// or https://. {_WAY_OUT}")
    return spec
