"""The web's search engines as tools, from their settings."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from pydantic import SecretStr

from rubricem_agent.build.keys import google_key_for
from rubricem_agent.config.tools import SEARCH_KEY, GoogleSearchConfig, RateConfig, ToolsConfig
from rubricem_env.domain.errors import MissingExtraError
from rubricem_env.llm.limiter import Rates
from rubricem_env.llm.retry import RetryPolicy, Timing
from rubricem_env.llm.secrets import Redactor, read_secret
from rubricem_env.tools.backend import Backend, GuardedTool, GuardSettings
from rubricem_env.tools.base import LocalToolbox, Tool
from rubricem_env.tools.breaker import BreakerSettings
from rubricem_env.tools.budget import ToolBudget
from rubricem_env.tools.cache import CachedTool
from rubricem_env.tools.cache_store import CacheBounds, CacheStore, MemoryStore, SqliteStore
from rubricem_env.tools.redacting import RedactingTool


async def web_toolbox(
    config: ToolsConfig, environ: Mapping[str, str], *, stack: AsyncExitStack, budget: ToolBudget, redactor: Redactor
) -> LocalToolbox:
    """The engines that the settings choose, each behind its limits and a shared cache.

    Raises:
        ConfigError: a key is missing.
        MissingExtraError: a package is missing.
    """
    store = await _open_store(config, stack)
    tools: list[Tool] = []
    for backend, rates, scope, breaker in _backends(config, environ):
        guard = GuardSettings(
            rates=Rates(**rates.model_dump()),
            breaker=breaker,
            timeout=config.timeout,
            retry=RetryPolicy(attempts=4, initial_delay=0.5, max_delay=20.0, deadline=config.total),
        )
        guarded = GuardedTool(backend, guard, budget=budget, timing=Timing.real())
        stack.push_async_callback(guarded.aclose)
        # Before the cache: an engine may echo a key, and a cache file outlives the run.
        tool: Tool = RedactingTool(guarded, redactor)
        tools.append(tool if store is None else CachedTool(tool, store, scope=scope))
    return LocalToolbox(*tools)


class _Ready(NamedTuple):
    backend: Backend
    rates: RateConfig
    scope: str
    """What its cached results depend on beside the call."""
    breaker: BreakerSettings = BreakerSettings()


def _backends(config: ToolsConfig, environ: Mapping[str, str]) -> Sequence[_Ready]:
    try:
        from rubricem_env.tools.fetch_page import PageFetcher
        from rubricem_env.tools.snippet_search import SemanticScholarSearch
    except ModuleNotFoundError as cause:
        raise MissingExtraError("httpx2", "tools", "searching the web") from cause
    google, scholar = config.google_search, config.snippet_search
    written = environ.get("S2_API_KEY", "").strip()
    papers = SemanticScholarSearch.connect(key=SecretStr(written) if written else None, url=scholar.url)
    ready = [
        _Ready(_google_backend(google, environ), google.rates, _google_scope(google)),
        _Ready(papers, scholar.rates, f"semantic scholar {scholar.url}"),
    ]
    if config.fetch_page:
        ready.append(_Ready(PageFetcher(), RateConfig(), "fetch", BreakerSettings(failures=None)))
    return ready


def _google_scope(config: GoogleSearchConfig) -> str:
    """A plain engine's answer depends on how many results it is asked for."""
    scope = f"{config.engine} {config.model} {config.url}"
    return f"{scope} {config.results}" if config.engine == "plain" else scope


def _google_backend(config: GoogleSearchConfig, environ: Mapping[str, str]) -> Backend:
    if config.engine == "plain":
        from rubricem_env.tools.web_search import DEFAULT_URL, PlainWebSearch

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
    bounds = CacheBounds(ttl=cache.ttl_hours * 3600, entries=cache.entries)
    store: CacheStore = MemoryStore(bounds, time.time)
    if cache.path is not None:
        store = SqliteStore(cache.path, bounds, time.time)
    # A file that cannot be used is said now, not at the first search.
    await store.get("")
    stack.push_async_callback(store.aclose)
    return store
