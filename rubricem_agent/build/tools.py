"""The toolbox of an episode, from its settings.

The web's search engines as tools, from their settings.

MCP servers as toolboxes, from their settings: anybody's, or our own tool server elsewhere.

The tool server, from its settings to its end.
"""

import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr

from rubricem_agent.build.models import google_key_for
from rubricem_agent.config import (
    SEARCH_KEY,
    GoogleSearchConfig,
    MountedServerConfig,
    RateConfig,
    RemoteToolsConfig,
    ToolsConfig,
)
from rubricem_env import __version__
from rubricem_env.domain.errors import ConfigError, MissingExtraError, ToolError
from rubricem_env.env.research_env import shipped_toolbox
from rubricem_env.llm.base import Redactor, read_secret
from rubricem_env.llm.limits import Rates, RetryPolicy, Timing
from rubricem_env.llm.usage import Meter, SpendLimits
from rubricem_env.tools.base import LocalToolbox, RedactingToolbox, Tool, Toolbox
from rubricem_env.tools.cache import CachedTool, CacheStore, InMemoryCache, SqliteStore
from rubricem_env.tools.corpus_search import Corpus, offline_toolbox
from rubricem_env.tools.guard import Backend, GuardedTool, GuardSettings, ToolFailure
from rubricem_env.tools.record import RecordingToolbox, ReplayToolbox
from rubricem_env.tools.spec import FETCH_PAGE, ToolSpec


async def web_toolbox(
    config: ToolsConfig, environ: Mapping[str, str], *, stack: AsyncExitStack, budget: Meter, redactor: Redactor
) -> LocalToolbox:
    """The engines that the settings choose, each behind its limits and a shared cache.

    Raises:
        ConfigError: a key is missing.
        MissingExtraError: a package is missing.
    """
    store = await _open_store(config, stack)
    tools: list[Tool] = []
    for backend, rates, scope in _backends(config, environ):
        guard = GuardSettings(
            rates=Rates(**rates.model_dump()),
            # A page fetcher calls a different server each time, so that one failure says nothing about the next call.
            breaker_failures=None if backend.spec.name == FETCH_PAGE else 8,
            timeout=config.timeout,
            retry=RetryPolicy(attempts=4, initial_delay=0.5, max_delay=20.0, deadline=config.total),
        )
        # Redacted before the cache: an engine may echo a key, and a cache file outlives the run.
        guarded = GuardedTool(backend, guard, timing=Timing.real(), budget=budget, redactor=redactor)
        stack.push_async_callback(guarded.aclose)
        tools.append(guarded if store is None else CachedTool(guarded, store, scope=scope))
    return LocalToolbox(*tools)


def _backends(config: ToolsConfig, environ: Mapping[str, str]) -> Sequence[tuple[Backend, RateConfig, str]]:
    """Each backend with its rates, and what its cached results depend on besides the call."""
    try:
        from rubricem_env.tools.fetch_page import PageFetcher
        from rubricem_env.tools.semantic_scholar import SemanticScholarSearch
    except ModuleNotFoundError as cause:
        raise MissingExtraError("httpx2", "tools", "searching the web") from cause
    google, scholar = config.google_search, config.snippet_search
    written = environ.get("S2_API_KEY", "").strip()
    papers = SemanticScholarSearch.connect(key=SecretStr(written) if written else None, url=scholar.url)
    ready: list[tuple[Backend, RateConfig, str]] = [
        (_google_backend(google, environ), google.rates, _google_scope(google)),
        (papers, scholar.rates, f"semantic scholar {scholar.url}"),
    ]
    if config.fetch_page:
        ready.append((PageFetcher(), RateConfig(), "fetch"))
    return ready


def _google_scope(config: GoogleSearchConfig) -> str:
    """A plain engine's answer depends on how many results it is asked for."""
    scope = f"{config.engine} {config.model} {config.url}"
    return f"{scope} {config.results}" if config.engine == "plain" else scope


def _google_backend(config: GoogleSearchConfig, environ: Mapping[str, str]) -> Backend:
    if config.engine == "plain":
        from rubricem_env.tools.serper_search import DEFAULT_URL, PlainWebSearch

        key = read_secret(environ, "SERPER_API_KEY", purpose="google_search through a plain search engine")
        return PlainWebSearch.connect(
            key,
            url=config.url or DEFAULT_URL,
            key_header=config.key_header,
            limit=config.results,
            fee=0.001 if config.fee is None else config.fee,
        )
    try:
        from rubricem_env.tools.google_search import GeminiGoogleSearch
    except ModuleNotFoundError as cause:
        raise MissingExtraError("google-genai", "tools", "google_search through Gemini") from cause
    key = google_key_for(config.url or "", environ, own=SEARCH_KEY, who="google_search through Gemini")
    fee = 0.014 if config.fee is None else config.fee
    return GeminiGoogleSearch.connect(key, model=config.model, base_url=config.url, fee=fee)


async def _open_store(config: ToolsConfig, stack: AsyncExitStack) -> CacheStore | None:
    cache = config.cache
    if not cache.enabled:
        return None
    ttl = cache.ttl_hours * 3600
    store: CacheStore = InMemoryCache(time.time, ttl=ttl, max_entries=cache.entries)
    if cache.path is not None:
        store = SqliteStore(cache.path, time.time, ttl=ttl, max_entries=cache.entries)
    # A file that cannot be used is said now, not at the first search.
    await store.get("")
    stack.push_async_callback(store.aclose)
    return store


TOKEN_VARIABLE = "RUBRICEM_TOOLS_TOKEN"
_PATH = "/mcp"
"""Where `rubricem tools serve` answers."""


async def mount_server(
    server: MountedServerConfig, environ: Mapping[str, str], stack: AsyncExitStack
) -> LocalToolbox:
    """Its tools, over a link that the stack closes.

    Raises:
        ConfigError: a variable is missing, or the server cannot be reached.
        MissingExtraError: mcp is not installed.
    """
    try:
        return await _connect(server, environ, stack)
    except ToolError as failure:
        raise ConfigError(f"the MCP server {server.name!r} of the settings does not work: {failure}") from failure


async def open_remote(remote: RemoteToolsConfig, environ: Mapping[str, str], stack: AsyncExitStack) -> LocalToolbox:
    """The tools of a `rubricem tools serve` elsewhere, over a link that the stack closes.

    Raises:
        ConfigError: the server cannot be reached, or refuses; the message says what to look at.
        MissingExtraError: mcp is not installed.
    """
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
        is_refused = not (isinstance(failure, ToolFailure) and failure.is_retryable)
        advice = _remote_advice(remote.url, has_token=has_token, is_refused=is_refused)
        raise ConfigError(f"the tool server {_shown(remote.url)} does not work: {failure} {advice}") from failure


def _shown(url: str) -> str:
    """An address without what may be a key: a login, or what is asked for."""
    address = urlsplit(url)
    return f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"


def _remote_advice(url: str, *, has_token: bool, is_refused: bool) -> str:
    address = urlsplit(url)
    advice = ""
    if address.path.rstrip("/") != _PATH:
        at = f"{address.scheme or 'http'}://{address.netloc.rpartition('@')[2] or '127.0.0.1:8765'}{_PATH}"
        advice = f"`rubricem tools serve` answers at {_PATH}; the address would be {at}. "
    if not is_refused:
        return f"{advice}Is it running? Start one with `rubricem tools serve --transport http`."
    if has_token:
        return f"{advice}{TOKEN_VARIABLE} is set; its value must be the token that the server was given or printed."
    return f"{advice}{TOKEN_VARIABLE} is not set; set it to the token that the server was given or printed."


async def _connect(server: MountedServerConfig, environ: Mapping[str, str], stack: AsyncExitStack) -> LocalToolbox:
    try:
        from rubricem_env.tools.mcp_client import McpLink, McpToolbox, open_http, open_stdio
    except ModuleNotFoundError as cause:
        raise MissingExtraError("mcp", "tools", f"the MCP server {server.name!r}") from cause
    if server.command is not None:
        passed_on = _passed_on(server, environ)
        opener = partial(open_stdio, server.command, server.arguments, passed_on, timeout=server.timeout)
    else:
        opener = partial(open_http, server.url or "", _token(server, environ), timeout=server.timeout)
    link = McpLink(
        server.name,
        opener,
        timing=Timing.real(),
        concurrency=server.concurrency,
        timeout=server.timeout,
        total=server.timeout * 2,
        repeats_lost_calls=server.repeats_lost_calls,
    )
    stack.push_async_callback(link.aclose)
    return await McpToolbox.connect(link, server.only)


def _passed_on(server: MountedServerConfig, environ: Mapping[str, str]) -> dict[str, str]:
    absent = [name for name in server.environment if name not in environ]
    if absent:
        raise ConfigError(f"the MCP server {server.name!r} wants the environment variable {absent[0]}; set it.")
    return {name: environ[name] for name in server.environment}


def _token(server: MountedServerConfig, environ: Mapping[str, str]) -> SecretStr | None:
    if server.token_variable is None:
        return None
    return read_secret(environ, server.token_variable, purpose=f"the MCP server {server.name!r}")


_SECRETS = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "S2_API_KEY", "SERPER_API_KEY", SEARCH_KEY, TOKEN_VARIABLE)


class OpenTools(NamedTuple):
    """Tools that are ready to be called."""

    toolbox: Toolbox
    specs: tuple[ToolSpec, ...]
    """Empty for a replay, which knows names alone."""
    budget: Meter
    redactor: Redactor


@asynccontextmanager
async def open_tools(config: ToolsConfig, environ: Mapping[str, str]) -> AsyncIterator[OpenTools]:
    """Connect what the settings name; everything is closed on the way out.

    Raises:
        ConfigError: a key is missing, or a server of the settings cannot be reached.
        MissingExtraError: a package is missing; the message holds the pip line.
    """
    budget = Meter(SpendLimits(calls=config.budget.calls, dollars=config.budget.dollars))
    redactor = _redactor(config, environ)
    if config.replay is not None:
        replay = RedactingToolbox(ReplayToolbox.from_file(config.replay), redactor)
        yield OpenTools(replay, (), budget, redactor)
        return
    async with AsyncExitStack() as stack:
        own = await _own_toolbox(config, environ, stack=stack, budget=budget, redactor=redactor)
        mounted = [await mount_server(server, environ, stack) for server in config.mounted]
        joined = LocalToolbox(*(tool for toolbox in (own, *mounted) for tool in toolbox.tools.values()))
        toolbox: Toolbox = RedactingToolbox(joined, redactor)
        if config.record is not None:
            toolbox = RecordingToolbox.onto(joined, config.record, redactor)
        yield OpenTools(toolbox, joined.specs, budget, redactor)


@asynccontextmanager
async def over_mcp(tools: OpenTools) -> AsyncIterator[Toolbox]:
    """The same tools called through the whole protocol within this process, as a remote server would be."""
    try:
        from rubricem_env.tools.mcp_client import McpLink, McpToolbox, open_in_process
        from rubricem_env.tools.mcp_server import tool_server
    except ModuleNotFoundError as cause:
        raise MissingExtraError("mcp", "tools", "calling tools over MCP") from cause
    server = tool_server(tools.toolbox, tools.specs)
    link = McpLink("rubricem", lambda: open_in_process(server), timing=Timing.real())
    toolbox = McpToolbox(link, tools.specs)
    try:
        yield toolbox
    finally:
        await toolbox.aclose()


def _redactor(config: ToolsConfig, environ: Mapping[str, str]) -> Redactor:
    variables = {*_SECRETS, *(server.token_variable or "" for server in config.mounted)}
    variables |= {name for server in config.mounted for name in server.environment}
    return Redactor(SecretStr(environ[name].strip()) for name in sorted(variables) if environ.get(name, "").strip())


async def _own_toolbox(
    config: ToolsConfig, environ: Mapping[str, str], *, stack: AsyncExitStack, budget: Meter, redactor: Redactor
) -> LocalToolbox:
    if config.remote is not None:
        return await open_remote(config.remote, environ, stack)
    if config.backend == "offline":
        return offline_toolbox(Corpus.from_jsonl(config.corpus)) if config.corpus else shipped_toolbox()
    return await web_toolbox(config, environ, stack=stack, budget=budget, redactor=redactor)


_GRACE_SECONDS = 5


async def serve_tools(
    config: ToolsConfig,
    environ: Mapping[str, str],
    *,
    token: SecretStr | None,
    host: str,
    port: int,
    announce: Callable[[str], None],
) -> None:
    """Serve until the client closes standard input, or over HTTP until SIGINT or SIGTERM; HTTP is where a token is.

    `announce` is told the address once it is taken; over standard input and output there is none to tell.

    Raises:
        ConfigError: the settings do not work, or the port is taken.
        MissingExtraError: the tools extra is not installed.
    """
    try:
        from rubricem_env.tools.mcp_server import serve_stdio, tool_server
    except ModuleNotFoundError as cause:
        raise MissingExtraError("mcp", "tools", "serving tools over MCP") from cause
    async with open_tools(config, environ) as tools:
        if not tools.specs:
            raise ConfigError("a replay cannot be served: it knows no schemas. Use it where the episodes run.")
        server = tool_server(tools.toolbox, tools.specs, __version__)
        if token is None:
            await serve_stdio(server)
        else:
            await _serve_http(server, token, host=host, port=port, announce=announce)


async def _serve_http(server: Any, token: SecretStr, *, host: str, port: int, announce: Callable[[str], None]) -> None:
    try:
        import uvicorn

        from rubricem_env.tools.mcp_server import http_app
    except ModuleNotFoundError as cause:
        raise MissingExtraError("uvicorn", "tools", "serving tools over HTTP") from cause
    listening = _listen(host, port)
    app = http_app(server, token=token, host=host)
    settings = uvicorn.Config(
        app, log_level="warning", access_log=False, ws="none", timeout_graceful_shutdown=_GRACE_SECONDS
    )
    address, taken = listening.getsockname()[:2]
    announce(f"http://{address}:{taken}/mcp")
    await uvicorn.Server(settings).serve(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    with ExitStack() as stack:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            listening = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
        except OSError as cause:
            reason = f"cannot listen on {host} port {port}: {cause.strerror}"
            raise ConfigError(f"{reason}. Choose another --port.") from cause
        stack.pop_all()
        return listening
