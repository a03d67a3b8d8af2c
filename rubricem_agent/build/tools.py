"""The toolbox of an episode, from its settings."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from pydantic import SecretStr

from rubricem_agent.build.mounted_tools import TOKEN_VARIABLE, mount_server, open_remote
from rubricem_agent.build.web_tools import web_toolbox
from rubricem_agent.config.tools import SEARCH_KEY, ToolsConfig
from rubricem_env.domain.errors import MissingExtraError
from rubricem_env.env.offline import shipped_toolbox
from rubricem_env.llm.retry import Timing
from rubricem_env.llm.secrets import Redactor
from rubricem_env.llm.usage import Ceilings
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.budget import ToolBudget
from rubricem_env.tools.corpus import Corpus
from rubricem_env.tools.corpus_search import offline_toolbox
from rubricem_env.tools.joined import DescribedToolbox, JoinedToolbox
from rubricem_env.tools.recording import RecordingToolbox
from rubricem_env.tools.redacting import RedactingToolbox
from rubricem_env.tools.replay import ReplayToolbox
from rubricem_env.tools.spec import ToolSpec

_SECRETS = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "S2_API_KEY", "SERPER_API_KEY", SEARCH_KEY, TOKEN_VARIABLE)


class OpenTools(NamedTuple):
    """Tools that are ready to be called."""

    toolbox: Toolbox
    specs: tuple[ToolSpec, ...]
    """Empty for a replay, which knows names alone."""
    budget: ToolBudget
    redactor: Redactor


@asynccontextmanager
async def open_tools(config: ToolsConfig, environ: Mapping[str, str]) -> AsyncIterator[OpenTools]:
    """Connect what the settings name; everything is closed on the way out.

    Raises:
        ConfigError: a key is missing, or a server of the settings cannot be reached.
        MissingExtraError: a package is missing; the message holds the pip line.
    """
    budget = ToolBudget(Ceilings(calls=config.budget.calls, dollars=config.budget.dollars))
    redactor = _redactor(config, environ)
    if config.replay is not None:
        replay = RedactingToolbox(ReplayToolbox.from_file(config.replay), redactor)
        yield OpenTools(replay, (), budget, redactor)
        return
    async with AsyncExitStack() as stack:
        own = await _own_toolbox(config, environ, stack=stack, budget=budget, redactor=redactor)
        mounted = [await mount_server(server, environ, stack) for server in config.mounted]
        joined = JoinedToolbox(own, *mounted)
        toolbox: Toolbox = RedactingToolbox(joined, redactor)
        if config.record is not None:
            # Once more outside: what is recorded is the call without keys, so that a replay finds it.
            toolbox = RedactingToolbox(RecordingToolbox.onto(toolbox, config.record), redactor)
        yield OpenTools(toolbox, joined.specs, budget, redactor)


@asynccontextmanager
async def over_mcp(tools: OpenTools) -> AsyncIterator[Toolbox]:
    """The same tools called through the whole protocol within this process, as a remote server would be."""
    try:
        from rubricem_env.tools.mcp_link import LinkSettings, McpLink
        from rubricem_env.tools.mcp_server import ToolServer
        from rubricem_env.tools.mcp_session import InProcessServer, open_session
        from rubricem_env.tools.mcp_toolbox import McpToolbox
    except ModuleNotFoundError as cause:
        raise MissingExtraError("mcp", "tools", "calling tools over MCP") from cause
    target = InProcessServer(ToolServer(tools.toolbox, tools.specs).protocol_server())
    settings = LinkSettings()
    link = McpLink(
        "rubricem", lambda: open_session(target, timeout=settings.timeout), settings=settings, timing=Timing.real()
    )
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
    config: ToolsConfig, environ: Mapping[str, str], *, stack: AsyncExitStack, budget: ToolBudget, redactor: Redactor
) -> DescribedToolbox:
    if config.remote is not None:
        return await open_remote(config.remote, environ, stack)
    if config.backend == "offline":
        return offline_toolbox(Corpus.from_jsonl(config.corpus)) if config.corpus else shipped_toolbox()
    return await web_toolbox(config, environ, stack=stack, budget=budget, redactor=redactor)
