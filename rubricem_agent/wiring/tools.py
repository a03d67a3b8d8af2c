"""Builds the toolbox of an episode from its settings, and serves tools over MCP."""

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr

from rubricem_agent.config.search_engines import SCHOLAR, GoogleSearchConfig, SearchConfig, SnippetSearchConfig
from rubricem_agent.config.tools import MountedServerConfig, PagesConfig, RemoteToolsConfig, ToolsConfig
from rubricem_agent.wiring.models import SEARCH_KEY, build_embedder, google_key_for, requires_extra, tool_key
from rubricem_env import __version__
from rubricem_env.domain.errors import ConfigError, ToolError
from rubricem_env.llm.hosts import url_host
from rubricem_env.llm.keys import Redactor, read_secret, redactor_of
from rubricem_env.llm.limits.limiter import LimiterOf, Rates, own_limiter
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.usage import Meter
from rubricem_env.tools.base import LocalToolbox, Tool, Toolbox
from rubricem_env.tools.cache import CachedTool
from rubricem_env.tools.cache_stores import CacheStore, InMemoryCache, SqliteStore
from rubricem_env.tools.corpus_search import Corpus, DocumentSearch, offline_toolbox
from rubricem_env.tools.engines import ENGINES
from rubricem_env.tools.failures import ToolFailure
from rubricem_env.tools.fallback import in_order
from rubricem_env.tools.guard import Backend, GuardedTool, GuardSettings
from rubricem_env.tools.record import RecordingToolbox, ReplayToolbox
from rubricem_env.tools.spec import DEFAULT_LIMIT, FETCH_PAGE_SPEC, FIND_SPEC, OPEN_SPEC, ToolSpec
from rubricem_env.tools.tables.run_sql import RunSql
from rubricem_env.world.offline import shipped_toolbox

if TYPE_CHECKING:
    from rubricem_env.tools.corpus_index import CorpusIndex

TOKEN_VARIABLE = "RUBRICEM_TOOLS_TOKEN"
MAY_START = "RUBRICEM_MAY_START"
_PAGE_KEYS = ("JINA_API_KEY", "CRAWL4AI_API_KEY")
_ENGINE_KEYS = sorted({engine.key for engine in ENGINES.values()})
TOOL_KEYS = (*_ENGINE_KEYS, "GOOGLE_API_KEY", *_PAGE_KEYS, SEARCH_KEY, TOKEN_VARIABLE)
_PAGE_TOOLS = frozenset({FETCH_PAGE_SPEC.name, OPEN_SPEC.name, FIND_SPEC.name})
_PATH = "/mcp"
"""The path of `rubricem tools serve`."""
_BETWEEN_ADDRESSES = re.compile(r",\s*(?=https?://)")
"""A comma within an address is part of it: some servers list their tools there."""
_SHUTDOWN_SECONDS = 5


class OpenTools(NamedTuple):
    """Connected tools."""

    toolbox: Toolbox
    specs: tuple[ToolSpec, ...]
    """Empty for a replay, which only knows names."""
    budget: Meter
    redactor: Redactor


def open_cache(config: ToolsConfig) -> CacheStore:
    """The cache of the settings."""
    cache = config.cache
    ttl = config.cache.ttl_hours * 3600
    if cache.path is not None:
        return SqliteStore(cache.path, time.time, ttl=ttl, max_entries=cache.entries)
    return InMemoryCache(time.time, ttl=ttl, max_entries=cache.entries)


@asynccontextmanager
async def open_tools(
    config: ToolsConfig,
    environ: Mapping[str, str],
    *,
    limiter_of: LimiterOf = own_limiter,
    store: CacheStore | None = None,
) -> AsyncIterator[OpenTools]:
    """Connect the tools of the settings; they are closed on the way out.

    `limiter_of` gives each engine its limiter, and `store` is the cache of all, in place of the settings'.

    Raises:
        ConfigError: a key is missing, or a server of the settings cannot be reached.
        MissingExtraError: a package is missing.
    """
    refuse_unnamed_programs(config.mounted, environ)
    budget = Meter(config.budget)
    variables = {*TOOL_KEYS, *(server.token_variable or "" for server in config.mounted)}
    variables |= {name for server in config.mounted for name in server.environment}
    secrets = (environ.get(name, "").strip() for name in sorted(variables))
    redactor = redactor_of(SecretStr(secret) for secret in secrets if secret)
    if config.replay is not None:
        yield OpenTools(ReplayToolbox(config.replay, redactor), (), budget, redactor)
        return
    async with AsyncExitStack() as stack:
        if config.remote is not None:
            own: LocalToolbox = await _open_remote(config.remote, environ, stack)
        elif config.backend == "web":
            own = await _web_toolbox(
                config,
                environ,
                stack=stack,
                budget=budget,
                redactor=redactor,
                limiter_of=limiter_of,
                store=(store or open_cache(config)) if config.cache.enabled else None,
            )
        elif config.backend == "none":
            own = LocalToolbox()
        else:
            own = (
                offline_toolbox(open_corpus(config.corpus, config.embedder_path))
                if config.corpus
                else shipped_toolbox()
            )
        mounted = [await _open_tables(config, stack, budget=budget, redactor=redactor)] if config.tables else []
        for server in config.mounted:
            try:
                mounted.append(await _connect(server, environ, stack))
            except ToolError as failure:
                raise ConfigError(
                    f"the MCP server {server.name!r} of the settings does not work: {failure}"
                ) from failure
        tools = (tool for toolbox in (own, *mounted) for tool in toolbox.tools.values())
        joined = LocalToolbox(*tools, redactor=redactor)
        toolbox = RecordingToolbox.onto(joined, config.record, redactor) if config.record else joined
        yield OpenTools(toolbox, joined.specs, budget, redactor)


async def _open_tables(
    config: ToolsConfig, stack: AsyncExitStack, *, budget: Meter, redactor: Redactor
) -> LocalToolbox:
    """`run_sql` over the tables of the settings, behind its limits and a cache that knows the state of the files."""
    place = config.tables or Path()
    backend = await asyncio.to_thread(RunSql.open, place)
    settings = GuardSettings(
        # A query waits for a process before its time begins. What failed fails again, and says nothing of the next.
        rates=Rates(concurrency=backend.processes),
        retry=RetryPolicy(attempts=1),
        timeout=backend.seconds * 2,
        breaker_failures=None,
    )
    tool = GuardedTool(backend, settings, timing=Timing.real(), budget=budget, redactor=redactor)
    stack.push_async_callback(tool.aclose)
    return LocalToolbox(CachedTool(tool, open_cache(config), scope=backend.state) if config.cache.enabled else tool)


def open_corpus(path: Path, embedder_path: Path | None = None) -> DocumentSearch:
    """The documents of a JSONL file, in memory, or those of an index in a folder, by meaning too if it has vectors.

    `embedder_path` is the folder of its embedder: an index may name one, and loads none.

    Raises:
        ConfigError: the index was built with the embedder of a folder, and none is given.
    """
    if not path.is_dir():
        return Corpus.from_jsonl(path)
    words = open_index(path)
    built = words.manifest
    if not built.embedder:
        return words
    with requires_extra("documents", "searching by meaning"):
        from rubricem_agent.data.corpus_vectors import HybridIndex
    if built.embedder_path and embedder_path is None:
        raise ConfigError(
            f"the index {path} was built with the embedder {built.embedder} of the folder {built.embedder_path[:200]}; "
            "an index loads no model. If you trust that folder, name it: embedder_path = FOLDER in the tool settings."
        )
    embedder = build_embedder(built.embedder, embedder_path)
    return HybridIndex(words, path, embedder)


def open_index(folder: Path) -> "CorpusIndex":
    """The index of a folder, by words; raises MissingExtraError where its engine is not installed."""
    with requires_extra("documents", "searching an index"):
        from rubricem_env.tools.corpus_index import CorpusIndex
    return CorpusIndex(folder)


@asynccontextmanager
async def over_mcp(tools: OpenTools) -> AsyncIterator[Toolbox]:
    """The same tools, called through the MCP protocol within this process, as from a remote server."""
    with requires_extra("tools", "calling tools over MCP", package="mcp"):
        from rubricem_env.tools.mcp_client import McpLink, McpToolbox
        from rubricem_env.tools.mcp_server import tool_server
        from rubricem_env.tools.mcp_session import open_in_process
    server = tool_server(tools.toolbox, tools.specs)
    link = McpLink("rubricem", lambda: open_in_process(server), timing=Timing.real())
    async with aclosing(McpToolbox(link, tools.specs)) as toolbox:
        yield toolbox


async def _web_toolbox(
    config: ToolsConfig,
    environ: Mapping[str, str],
    *,
    stack: AsyncExitStack,
    budget: Meter,
    redactor: Redactor,
    limiter_of: LimiterOf,
    store: CacheStore | None,
) -> LocalToolbox:
    """The tools of the web, each engine behind its limits, with a shared cache."""
    if store is not None:
        # Fail now, not at the first search, where the file cannot be used.
        await store.get("")
        stack.push_async_callback(store.aclose)

    def guarded(backend: Backend, rates: Rates, scope: str, *, server: str = "", attempts: int = 4) -> Tool:
        settings = GuardSettings(
            # A page fetcher calls a different server each time: one failure says nothing about the next call.
            breaker_failures=None if backend.spec.name in _PAGE_TOOLS else 8,
            timeout=config.timeout,
            retry=RetryPolicy(attempts=attempts, initial_delay=0.5, max_delay=20.0, deadline=config.total),
        )
        # Redacted before the cache: an engine may echo a key, and a cache file outlives the run.
        limiter = limiter_of(server or backend.spec.name, rates)
        tool = GuardedTool(backend, settings, timing=Timing.real(), budget=budget, redactor=redactor, limiter=limiter)
        stack.push_async_callback(tool.aclose)
        return tool if store is None else CachedTool(tool, store, scope=scope)

    def searching(search: SearchConfig) -> Iterator[Tool]:
        order: tuple[SearchConfig, ...] = search.in_order
        for settings in order:
            server = "" if settings is search else settings.engine
            # Where another engine stands in, it is asked sooner.
            attempts = 4 if settings is order[-1] else 2
            backend = search_backend(settings, environ)
            yield guarded(backend, settings.limits, _scope_of(settings), server=server, attempts=attempts)

    tools = [in_order([*searching(search)]) for search in (config.google_search, config.snippet_search)]
    pages = _page_tools(config.pages, environ) if config.fetch_page else ()
    return LocalToolbox(*tools, *(guarded(*page) for page in pages))


def _scope_of(config: SearchConfig) -> str:
    """What cached results depend on in addition to the call."""
    if isinstance(config, SnippetSearchConfig):
        return f"{config.engine.replace('_', ' ')} {config.url}"
    scope = f"{config.engine} {config.model} {config.url}"
    # The results of a plain engine depend on how many are requested.
    scope += f" {config.results}" if config.engine != "gemini" else ""
    sent = {"system", "temperature", "max_output_tokens"}
    changed = sorted(config.model_dump(include=sent, exclude_defaults=True).items())
    return scope + "".join(f" {name}={value}" for name, value in changed)


def _page_tools(config: PagesConfig, environ: Mapping[str, str]) -> Iterator[tuple[Backend, Rates, str]]:
    from rubricem_env.tools.pages.fetch import PageFetcher, PageSource, WebPages
    from rubricem_env.tools.pages.services import JINA_URL, Crawl4aiPages, JinaPages

    source: PageSource
    if config.reader == "jina":
        url = config.url or JINA_URL
        source = JinaPages(url, key=tool_key("JINA_API_KEY", environ, url=url, home="r.jina.ai"))
    elif config.reader == "crawl4ai":
        url = config.url or ""
        source = Crawl4aiPages(url, key=tool_key("CRAWL4AI_API_KEY", environ, url=url))
    else:
        source = WebPages(robots=config.robots, host_delay=config.host_delay)
    specs = (FETCH_PAGE_SPEC, OPEN_SPEC, FIND_SPEC) if config.open_and_find else (FETCH_PAGE_SPEC,)
    for spec in specs:
        yield PageFetcher(source, spec=spec), config.rates, f"pages {config.reader} {config.url or ''}"


def search_backend(config: SearchConfig, environ: Mapping[str, str]) -> Backend:
    """An engine; raises ConfigError where its key is missing or must not go to its address."""
    if isinstance(config, GoogleSearchConfig) and config.engine == "gemini":
        with requires_extra("tools", "google_search through Gemini", package="google-genai"):
            from rubricem_env.tools.google_search import SYSTEM, GeminiGoogleSearch
        return GeminiGoogleSearch(
            google_key_for(config.url or "", environ, own=SEARCH_KEY, who="google_search through Gemini"),
            model=config.model,
            base_url=config.url,
            fee=config.dollars,
            system=config.system or SYSTEM,
            temperature=config.temperature,
            max_output_tokens=config.max_output_tokens,
        )
    with requires_extra("tools", "searching the web", package="httpx2"):
        from rubricem_env.tools.http import SearchEngine
    engine = ENGINES[config.engine]
    url = engine.url if config.url in (None, ENGINES[SCHOLAR].url) else config.url or ""
    key = tool_key(engine.key, environ, url=url, home=url_host(engine.url)) if engine.key else None
    if engine.key and engine.needs_key:
        key = read_secret(environ, engine.key, purpose=f"{engine.spec.name} through {config.engine}")
    opened = partial(SearchEngine, config.engine, key=key, url=url, fee=config.dollars)
    if isinstance(config, SnippetSearchConfig):
        return opened(limit=DEFAULT_LIMIT)
    return opened(limit=config.results, key_header=config.key_header if config.engine == "plain" else "")


async def _open_remote(remote: RemoteToolsConfig, environ: Mapping[str, str], stack: AsyncExitStack) -> LocalToolbox:
    """The tools of a remote `rubricem tools serve`; raises ConfigError with advice where it does not work."""
    has_token = bool(environ.get(TOKEN_VARIABLE, "").strip())
    server = MountedServerConfig(
        name="rubricem",
        url=remote.url,
        token_variable=TOKEN_VARIABLE if has_token else None,
        timeout=remote.timeout,
        concurrency=remote.concurrency,
        repeats_lost_calls=True,
    )
    try:
        return await _connect(server, environ, stack)
    except ToolError as failure:
        # Without a login or a query, which may hold a key.
        parts = [
            (at.scheme, at.netloc.rpartition("@")[2], at.path)
            for at in map(urlsplit, _BETWEEN_ADDRESSES.split(remote.url))
        ]
        shown = ",".join(f"{scheme}://{host}{path}" for scheme, host, path in parts)
        advice = ""
        if any(path.rstrip("/") != _PATH for *_, path in parts):
            at = ",".join(f"{scheme or 'http'}://{host or '127.0.0.1:8765'}{_PATH}" for scheme, host, _ in parts)
            advice = f"`rubricem tools serve` answers at {_PATH}; the address would be {at}. "
        if isinstance(failure, ToolFailure) and failure.is_retryable:
            advice += "Is it running? Start one with `rubricem tools serve --transport http`."
        elif has_token:
            advice += f"{TOKEN_VARIABLE} is set; its value must be the token that the server was given or printed."
        else:
            advice += f"{TOKEN_VARIABLE} is not set; set it to the token that the server was given or printed."
        said = re.sub("^rubricem ", "it ", str(failure))
        raise ConfigError(f"the tool server {shown} does not work: {said} {advice}") from failure


def refuse_unnamed_programs(servers: Iterable[MountedServerConfig], environ: Mapping[str, str]) -> None:
    """A settings file starts no program, and hands over no variable, that the user has not named outside the file.

    `RUBRICEM_MAY_START` names them: programs with spaces between them, each with the variables that it may get, as in
    `mcp-server-time notes-server:NOTES_KEY+NOTES_HOST`.

    Raises:
        ConfigError: a server of the settings is a program, or gets a variable, that the user has not named.
    """
    named: dict[str, set[str]] = {}
    for entry in environ.get(MAY_START, "").split():
        program, _, variables = entry.partition(":")
        named.setdefault(program, set()).update(variables.split("+") if variables else ())
    for server in servers:
        if server.command is None:
            continue
        wanted = f"{server.command}:{'+'.join(server.environment)}" if server.environment else server.command
        advice = f"If you trust the file, name it outside the file: {MAY_START}='{wanted}'."
        if server.command not in named:
            raise ConfigError(
                f"the tool settings ask to start the program {server.command!r} as the MCP server {server.name!r}; a "
                f"settings file starts only what you have named. {advice}"
            )
        if unnamed := [name for name in server.environment if name not in named[server.command]]:
            raise ConfigError(
                f"the tool settings ask to give the environment variable {unnamed[0]} to the program "
                f"{server.command!r}; a settings file hands over only what you have named. {advice}"
            )


async def _connect(server: MountedServerConfig, environ: Mapping[str, str], stack: AsyncExitStack) -> LocalToolbox:
    with requires_extra("tools", f"the MCP server {server.name!r}", package="mcp"):
        from rubricem_env.tools.mcp_client import McpLink, McpToolbox
        from rubricem_env.tools.mcp_session import open_http, open_stdio
    if server.command is not None:
        absent = [name for name in server.environment if name not in environ]
        if absent:
            raise ConfigError(f"the MCP server {server.name!r} needs the environment variable {absent[0]}; set it.")
        given = {name: environ[name] for name in server.environment}
        openers = [partial(open_stdio, server.command, server.arguments, given, timeout=server.timeout)]
    else:
        token = None
        urls = _BETWEEN_ADDRESSES.split(server.url or "")
        if server.token_variable is not None:
            for url in urls:
                tool_key(server.token_variable, environ, url=url)
            token = read_secret(environ, server.token_variable, purpose=f"the MCP server {server.name!r}")
        openers = [partial(open_http, url, token, timeout=server.timeout) for url in urls]
    link = McpLink(
        server.name,
        *openers,
        timing=Timing.real(),
        concurrency=server.concurrency,
        timeout=server.timeout,
        total=server.timeout * 2,
        repeats_lost_calls=server.repeats_lost_calls,
    )
    stack.push_async_callback(link.aclose)
    return await McpToolbox.connect(link, server.only)


async def serve_tools(
    config: ToolsConfig,
    environ: Mapping[str, str],
    *,
    token: SecretStr | None,
    host: str,
    port: int,
    announce: Callable[[str], None],
) -> None:
    """Serve over standard input until it closes, or with a token over HTTP until SIGINT or SIGTERM.

    `announce` is called with the address of an HTTP server once it listens.

    Raises:
        ConfigError: the settings do not work, or the port is taken.
        MissingExtraError: the tools extra is not installed.
    """
    with requires_extra("tools", "serving tools over MCP", package="mcp"):
        from rubricem_env.tools.mcp_server import serve_stdio, tool_server
    async with open_tools(config, environ) as tools:
        if not tools.specs:
            raise ConfigError("a replay cannot be served: it knows no schemas. Use it where the episodes run.")
        server = tool_server(tools.toolbox, tools.specs, __version__)
        if token is None:
            await serve_stdio(server)
        else:
            await _serve_http(server, token, host=host, port=port, announce=announce)


async def _serve_http(server: Any, token: SecretStr, *, host: str, port: int, announce: Callable[[str], None]) -> None:
    with requires_extra("tools", "serving tools over HTTP", package="uvicorn"):
        import uvicorn

        from rubricem_env.tools.mcp_server import http_app
    listening = listen(host, port)
    app = http_app(server, token=token, host=host)
    settings = uvicorn.Config(
        app, log_level="warning", access_log=False, ws="none", timeout_graceful_shutdown=_SHUTDOWN_SECONDS
    )
    address, taken = listening.getsockname()[:2]
    announce(f"http://{address}:{taken}{_PATH}")
    await uvicorn.Server(settings).serve(sockets=[listening])


def listen(host: str, *ports: int) -> socket.socket:
    """A socket that accepts connections on the first free port; raises ConfigError where none is free."""
    for port in ports:
        with ExitStack() as stack:
            try:
                family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
                listening = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listening.bind((host, port))
                listening.listen()
                stack.pop_all()
                return listening
            except OSError as cause:
                reason = cause.strerror
    raise ConfigError(f"cannot listen on {host} port {ports[-1]}: {reason}. Choose another --port; 0 takes a free one.")
