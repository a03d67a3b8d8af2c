"""The tool server, from its settings to its end."""

import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from pydantic import SecretStr

from rubricem_agent.build.tools import open_tools
from rubricem_agent.config.tools import ToolsConfig
from rubricem_env import __version__
from rubricem_env.domain.errors import ConfigError, MissingExtraError

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
        from rubricem_env.tools.mcp_server import ToolServer, serve_stdio
    except ModuleNotFoundError as cause:
        raise MissingExtraError("mcp", "tools", "serving tools over MCP") from cause
    async with open_tools(config, environ) as tools:
        if not tools.specs:
            raise ConfigError("a replay cannot be served: it knows no schemas. Use it where the episodes run.")
        server = ToolServer(tools.toolbox, tools.specs).protocol_server(__version__)
        if token is None:
            await serve_stdio(server)
        else:
            await _serve_http(server, token, host=host, port=port, announce=announce)


async def _serve_http(server: Any, token: SecretStr, *, host: str, port: int, announce: Callable[[str], None]) -> None:
    try:
        import uvicorn

        from rubricem_env.tools.mcp_http import http_app
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
