"""Anybody's MCP server as a toolbox, from its settings."""

from collections.abc import Mapping
from contextlib import AsyncExitStack

from pydantic import SecretStr

from rubricem_agent.config.tools import MountedServerConfig
from rubricem_env.domain.errors import ConfigError, MissingExtraError, ToolError
from rubricem_env.llm.retry import Timing
from rubricem_env.llm.secrets import read_secret
from rubricem_env.tools.joined import DescribedToolbox


async def mount_server(
    server: MountedServerConfig, environ: Mapping[str, str], stack: AsyncExitStack
) -> DescribedToolbox:
    """Its tools, over a link that the stack closes.

    Raises:
        ConfigError: a variable is missing, or the server cannot be reached.
        MissingExtraError: mcp is not installed.
    """
    try:
        from rubricem_env.tools.mcp_link import LinkSettings, McpLink
        from rubricem_env.tools.mcp_session import HttpServer, StdioServer, Target, open_session
        from rubricem_env.tools.mcp_toolbox import McpToolbox
    except ModuleNotFoundError as cause:
        raise MissingExtraError("mcp", "tools", f"the MCP server {server.name!r}") from cause
    target: Target
    if server.command is not None:
        target = StdioServer(server.command, server.arguments, _passed_on(server, environ))
    else:
        target = HttpServer(server.url or "", _token(server, environ))
    settings = LinkSettings(
        concurrency=server.concurrency,
        timeout=server.timeout,
        total=server.timeout * 2,
        repeats_lost_calls=server.repeats_lost_calls,
    )
    link = McpLink(
        server.name, lambda: open_session(target, timeout=server.timeout), settings=settings, timing=Timing.real()
    )
    stack.push_async_callback(link.aclose)
    try:
        return await McpToolbox.connect(link, server.only)
    except ToolError as failure:
        raise ConfigError(f"the MCP server {server.name!r} of the settings does not work: {failure}") from failure


def _passed_on(server: MountedServerConfig, environ: Mapping[str, str]) -> dict[str, str]:
    absent = [name for name in server.environment if name not in environ]
    if absent:
        raise ConfigError(f"the MCP server {server.name!r} wants the environment variable {absent[0]}; set it.")
    return {name: environ[name] for name in server.environment}


def _token(server: MountedServerConfig, environ: Mapping[str, str]) -> SecretStr | None:
    if server.token_variable is None:
        return None
    return read_secret(environ, server.token_variable, purpose=f"the MCP server {server.name!r}")
