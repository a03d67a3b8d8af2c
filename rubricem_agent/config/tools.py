"""The settings of the search tools, and the file or the name that a command line gives for them."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from rubricem_agent.config.search_engines import GoogleSearchConfig, RateConfig, SnippetSearchConfig
from rubricem_agent.config.sections import read_mapping
from rubricem_env.domain.base import Frozen, PositiveCount
from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.usage import SpendLimits
from rubricem_records.evaluations.rules import SearchKind

THE_ALMANAC = "the shipped almanac, an invented world that holds none of their answers"
"""What messages call it where questions are about the real world."""

Seconds = Annotated[float, Field(gt=0)]


class ToolCacheConfig(Frozen):
    """The cache of results. Errors are never cached."""

    enabled: bool = True
    path: Path | None = None
    """A SQLite file shared by all processes; None caches in memory, for this process."""
    ttl_hours: Annotated[float, Field(gt=0)] = 240.0
    entries: PositiveCount = 100_000


class RemoteToolsConfig(Frozen):
    """A remote `rubricem tools serve`. RUBRICEM_TOOLS_TOKEN has its token, and RUBRICEM_TOOLS_TOKEN_HOST its host."""

    url: str
    """Or several, separated by commas: the server with the fewest open calls is asked, and one that is away is left
    out."""
    concurrency: PositiveCount = 256
    timeout: Seconds = 600.0
    """For one call, with its wait for a turn at the server."""


class MountedServerConfig(Frozen):
    """A third-party MCP server: a command to start, or an address."""

    name: str
    command: str | None = None
    arguments: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    """Names of our environment variables that the child process gets; it gets no others of ours."""
    url: str | None = None
    """Or several, separated by commas, of servers that answer alike."""
    token_variable: str | None = None
    """The environment variable that holds the bearer token for the address."""
    only: tuple[str, ...] = ()
    """The tools offered to the policy; empty offers all."""
    timeout: Seconds = 90.0
    concurrency: PositiveCount = 16
    repeats_lost_calls: bool = False
    """True where repeating a call is harmless: then a call survives a restart of the server."""

    @model_validator(mode="after")
    def _is_command_or_address(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError(f"the server {self.name!r} needs either a command or a url, and not both")
        return self


class PagesConfig(Frozen):
    """How web pages are read."""

    reader: Literal["direct", "jina", "crawl4ai"] = "direct"
    """direct: fetched and read here. jina: the Jina reader, key JINA_API_KEY if set. crawl4ai: a server of your own."""
    url: str | None = None
    """The address of the reader; crawl4ai needs one, such as http://127.0.0.1:11235."""
    open_and_find: bool = False
    """Offer the tools open, which reads a long page part by part, and find, which searches a page."""
    robots: bool = False
    """direct: obey robots.txt."""
    host_delay: Annotated[float, Field(ge=0)] = 0.0
    """direct: seconds between two requests to one host."""
    rates: RateConfig = RateConfig()

    @model_validator(mode="after")
    def _has_address(self) -> Self:
        if self.reader == "crawl4ai" and self.url is None:
            raise ValueError('pages.reader = "crawl4ai" needs pages.url, such as "http://127.0.0.1:11235"')
        return self


class ToolsConfig(Frozen):
    """The search tools; the defaults need no key and no network."""

    backend: Literal["offline", "web", "none"] = "offline"
    """none: no tools but those of `mounted`; without any, the agent answers from what it knows."""
    corpus: Path | None = None
    """Offline: the JSONL file or the folder of the index that is searched; None is the shipped corpus."""
    embedder_path: Path | None = None
    """Offline: the folder of the model that embeds queries, for an index that was built with `--embedder-path`."""
    google_search: GoogleSearchConfig = GoogleSearchConfig()
    snippet_search: SnippetSearchConfig = SnippetSearchConfig()
    fetch_page: bool = False
    """Web: offer fetch_page as well."""
    pages: PagesConfig = PagesConfig()
    cache: ToolCacheConfig = ToolCacheConfig()
    budget: SpendLimits = SpendLimits()
    timeout: Seconds = 30.0
    """For one attempt of one call."""
    total: Seconds = 60.0
    """For a whole call with its retries. Waiting for one's turn under the rates does not count."""
    remote: RemoteToolsConfig | None = None
    """Call that server in place of a backend in this process."""
    mounted: tuple[MountedServerConfig, ...] = ()
    tables: Path | None = None
    """Offer run_sql over the CSV and Parquet files of this folder, or over this SQLite file."""
    record: Path | None = None
    """Write every call and its result to this file."""
    replay: Path | None = None
    """Answer from this record only."""

    @property
    def asks_engines(self) -> bool:
        """Whether this process asks search engines itself."""
        return self.backend == "web" and self.remote is None and self.replay is None

    @property
    def searches(self) -> SearchKind:
        """What is searched, besides the mounted servers."""
        if self.replay is not None:
            return "record"
        if self.remote is not None:
            return "tool server"
        if self.backend == "web":
            return "web"
        if self.backend == "none":
            return "tool server" if self.mounted or self.tables else "closed book"
        return "almanac" if self.corpus is None else "index"

    @property
    def searched(self) -> str:
        """What is searched in words, such as `web (gemini, semantic_scholar)`: it begins with the kind."""
        names: tuple[str, ...] = ()
        match self.searches:
            case "record":
                names = (self.replay.name if self.replay else "",)
            case "tool server" if self.remote is not None:
                names = tuple(urlsplit(url.strip()).hostname or "?" for url in self.remote.url.split(","))
            case "web":
                searches = (self.google_search, self.snippet_search)
                names = tuple(engine.engine for search in searches for engine in search.in_order)
                names += (f"pages by {self.pages.reader}",) if self.fetch_page else ()
            case "index":
                names = (self.corpus.name if self.corpus else "",)
        if self.replay is None:
            names += tuple(f"server {server.name}" for server in self.mounted)
            names += (f"tables of {self.tables.name}",) if self.tables else ()
        return f"{self.searches} ({', '.join(names)})" if names else self.searches

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.record is not None and self.replay is not None:
            raise ValueError("record and replay are both set; a replay has nothing new to record")
        web = self.model_dump(include={"google_search", "snippet_search", "fetch_page", "pages"}, exclude_defaults=True)
        if web and self.backend != "web" and self.remote is None and self.replay is None:
            raise ValueError(
                f'{next(iter(web))} is a setting of the web, but backend is {self.backend}; set backend = "web"'
            )
        return self


def almanac_unasked(tools: ToolsConfig, *, questions: str, key: str) -> str:
    """What is wrong where settings that name no backend search the almanac for questions about the real world.

    Empty where nothing is. `key` is where the settings stand in a config, and `questions` names the questions.
    """
    if tools.searches != "almanac" or "backend" in tools.model_fields_set:
        return ""
    return (
        f"{questions} are about the real world, and {key} names no backend: it would search {THE_ALMANAC}; set "
        f"{key}.backend to web or {key}.corpus to your documents, or {key}.backend to offline for the almanac all the "
        "same"
    )


def read_tools_config(settings: Mapping[str, Any], where: str = "tools") -> ToolsConfig:
    """Read settings from a mapping; raises ConfigError on an unknown key at any depth or a value out of range."""
    return read_mapping(settings, ToolsConfig, where=f"config {where}", separator=": ")


def load_tools_config(path: Path) -> ToolsConfig:
    """Read settings from a TOML file, at its top level or in its table [tools].

    Relative paths in the file are relative to its folder. The folder of an index, or a JSONL file of documents, stands
    for the settings that search it.

    Raises:
        ConfigError: the file cannot be read, has an unknown key at any depth, or a value out of range.
    """
    if path.is_dir() or path.suffix.casefold() == ".jsonl":
        return ToolsConfig(corpus=path)
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError, tomllib.TOMLDecodeError) as cause:
        raise ConfigError(f"cannot read the config {path}: {cause}. Give the path of a TOML file.") from cause
    if isinstance(settings.get("tools"), dict):
        settings = settings["tools"]
    config = read_tools_config(settings, str(path))

    def beside(file: Path | None) -> Path | None:
        return file and path.parent / file.expanduser()

    return config.model_copy(
        update={
            "corpus": beside(config.corpus),
            "embedder_path": beside(config.embedder_path),
            "tables": beside(config.tables),
            "record": beside(config.record),
            "replay": beside(config.replay),
            "cache": config.cache.model_copy(update={"path": beside(config.cache.path)}),
        }
    )


def shown_tools(text: str) -> str:
    """What a command line says of its tools, without a login or a query, which may hold a key."""
    addresses = [urlsplit(part.strip()) for part in text.split(",")]
    if not all(address.scheme in ("http", "https") for address in addresses):
        return text
    return ",".join(f"{at.scheme}://{at.netloc.rpartition('@')[2]}{at.path}" for at in addresses)


def parse_tools(text: str) -> ToolsConfig:
    """The tools that a command line names; raises ConfigError where it names none, or its settings are wrong."""
    if text in ("offline", "web", "none"):
        return ToolsConfig.model_validate({"backend": text})
    address = urlsplit(text)
    if address.scheme in ("http", "https") and address.hostname:
        return ToolsConfig(remote=RemoteToolsConfig(url=text))
    if Path(text).suffix not in (".toml", ".jsonl") and not Path(text).is_dir():
        raise ConfigError(
            f"there are no tools {text!r}. Use offline, web, none, a TOML file of settings, the folder of an index, a "
            "JSONL file of documents, or the URL of a tool server."
        )
    return load_tools_config(Path(text))
