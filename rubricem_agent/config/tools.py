"""What may be set about the search tools."""

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory_json import first_problem

SEARCH_KEY = "RUBRICEM_SEARCH_KEY"
"""The variable with the key of a server that speaks Gemini's API and is not Google's."""
Count = Annotated[int, Field(ge=1)]
Dollars = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]


class _Settings(BaseModel):
    """A group of keys; an unknown one is refused with the nearest known name."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _knows_its_keys(cls, given: Any) -> Any:
        for key in given if isinstance(given, Mapping) else ():
            if key not in cls.model_fields:
                near = difflib.get_close_matches(str(key), cls.model_fields, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(cls.model_fields)}."
                raise ValueError(f"there is no key {key!r}; {hint}")
        return given


class RateConfig(_Settings):
    """How fast one engine is asked."""

    concurrency: Count = 64
    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None


class GoogleSearchConfig(_Settings):
    """The engine behind google_search."""

    engine: Literal["gemini", "plain"] = "gemini"
    """gemini: grounded generation, key GEMINI_API_KEY. plain: a Serper-like endpoint, key SERPER_API_KEY."""
    model: str = "gemini-3-flash"
    url: str | None = None
    """Another base address of the API (gemini), or the endpoint (plain)."""
    key_header: str = "X-API-KEY"
    """Plain: the header that carries the key."""
    results: Count = 5
    """Plain: how many are asked for."""
    fee: Dollars | None = None
    """Dollars a call beside tokens, for the budget; None takes the engine's usual fee."""
    rates: RateConfig = RateConfig(requests_per_minute=1_000)


class SnippetSearchConfig(_Settings):
    """Semantic Scholar; S2_API_KEY is used where it is set."""

    url: str = "https://api.semanticscholar.org"
    rates: RateConfig = RateConfig(concurrency=4, requests_per_minute=60)


class ToolCacheConfig(_Settings):
    """What is remembered. Errors never are."""

    enabled: bool = True
    path: Path | None = None
    """A SQLite file shared by all processes; None remembers in memory, for this process."""
    ttl_hours: Annotated[float, Field(gt=0)] = 240.0
    entries: Count = 100_000


class ToolBudgetConfig(_Settings):
    """The most that a run may spend on tools; None is no ceiling."""

    calls: Count | None = None
    dollars: Dollars | None = None


class RemoteToolsConfig(_Settings):
    """A `rubricem tools serve` elsewhere; its token is read from RUBRICEM_TOOLS_TOKEN."""

    url: str
    concurrency: Count = 256
    timeout: Seconds = 90.0


class MountedServerConfig(_Settings):
    """Anybody's MCP server: a command to start, or an address."""

    name: str
    command: str | None = None
    arguments: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    """Names of our environment variables that the child process gets; it gets no others of ours."""
    url: str | None = None
    token_variable: str | None = None
    """The environment variable that holds the bearer token for the address."""
    only: tuple[str, ...] = ()
    """The tools that are offered; empty offers all."""
    timeout: Seconds = 90.0
    concurrency: Count = 16
    repeats_lost_calls: bool = False
    """True where calling twice does no harm: then a call survives the server's restart."""

    @model_validator(mode="after")
    def _is_command_or_address(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError(f"the server {self.name!r} needs either a command or a url, and not both")
        return self


class ToolsConfig(_Settings):
    """All about the search tools; the defaults need no key and no network."""

    backend: Literal["offline", "web"] = "offline"
    corpus: Path | None = None
    """Offline: the JSONL file that is searched; None is the shipped one."""
    google_search: GoogleSearchConfig = GoogleSearchConfig()
    snippet_search: SnippetSearchConfig = SnippetSearchConfig()
    fetch_page: bool = False
    """Web: offer fetch_page as well."""
    cache: ToolCacheConfig = ToolCacheConfig()
    budget: ToolBudgetConfig = ToolBudgetConfig()
    timeout: Seconds = 30.0
    """For one try of one call."""
    total: Seconds = 60.0
    """For a call in all: retries, and waiting for a place."""
    remote: RemoteToolsConfig | None = None
    """Ask that server instead of a backend in this process."""
    mounted: tuple[MountedServerConfig, ...] = ()
    record: Path | None = None
    """Write every call and its result to this file."""
    replay: Path | None = None
    """Answer from this record, and from nothing else."""

    @model_validator(mode="after")
    def _records_or_replays(self) -> Self:
        if self.record is not None and self.replay is not None:
            raise ValueError("record and replay are both set; a replay has nothing new to record")
        return self


def read_tools_config(settings: Mapping[str, Any], where: str = "tools") -> ToolsConfig:
    """Settings from a mapping.

    Raises:
        ConfigError: a key is unknown or a value out of range; the message names the place and the way out.
    """
    try:
        return ToolsConfig.model_validate(settings)
    except ValidationError as cause:
        raise ConfigError(f"config {where}, {first_problem(cause)}") from cause


def load_tools_config(path: Path) -> ToolsConfig:
    """Settings from a TOML file, at its top level or in its table [tools].

    Raises:
        ConfigError: the file cannot be read, or as `read_tools_config`.
    """
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as cause:
        raise ConfigError(f"cannot read the config {path}: {cause}. Give the path of a TOML file.") from cause
    inner = settings.get("tools")
    return read_tools_config(inner if isinstance(inner, dict) else settings, str(path))
