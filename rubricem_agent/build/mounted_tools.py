"""MCP servers as toolboxes, from their settings: anybody's, or our own tool server elsewhere."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

from pydantic import SecretStr

from rubricem_agent.config.tools import MountedServerConfig, RemoteToolsConfig
from rubricem_env.domain.errors import ConfigError, MissingExtraError, ToolError
from rubricem_env.llm.retry import Timing
from rubricem_env.llm.secrets import read_secret
from rubricem_env.tools.failure import ToolFailure
from rubricem_env.tools.joined import DescribedToolbox

TOKEN_VARIABLE = "RUBRICEM_TOOLS_TOKEN"
_PATH = "/mcp"
"""Where `rubricem tools serve` answers."""


async def mount_server(
    server: MountedServerConfig, environ: Mapping[str, str], stack: AsyncExitStack
) -> DescribedToolbox:
    """Its tools, over a link that the stack closes.

    Raises:
        ConfigError: a variable is missing, or the server cannot be reached.
        MissingExtraError: mcp is not installed.
    """
    try:
        return await _connect(server, environ, stack)
    except ToolError as failure:
        raise ConfigError(f"the MCP server {server.name!r} of the settings does not work: {failure}") from failure


async def open_remote(remote: RemoteToolsConfig, environ: Mapping[str, str], stack: AsyncExitStack) -> DescribedToolbox:
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
        is_refused = not (isinstance(failure, ToolFailure) and failure.passes)
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


async def _connect(server: MountedServerConfig, environ: Mapping[str, str], stack: AsyncExitStack) -> DescribedToolbox:
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
