"""`rubricem tools`: serve the search tools over MCP, or try one by hand."""

import asyncio
import os
import secrets
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import SecretStr

from rubricem_agent.build.tools import TOKEN_VARIABLE, open_tools, serve_tools
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal, to_json
from rubricem_agent.config import RemoteToolsConfig, ToolsConfig, load_tools_config
from rubricem_env.domain.errors import parse_assignment
from rubricem_env.domain.trajectory import ToolCall, ToolResult

Backend = Literal["offline", "web"]

tools_app = typer.Typer(
    name="tools",
    help="Serve the search tools over MCP, or try one by hand.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@tools_app.command()
def serve(
    backend: Annotated[Backend | None, typer.Option(help="Where answers come from; offline needs no key.")] = None,
    transport: Annotated[Literal["stdio", "http"], typer.Option(help="How clients connect.")] = "stdio",
    host: Annotated[str, typer.Option(help="HTTP: the address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="HTTP: the port; 0 takes a free one.")] = 8765,
    token: Annotated[
        str | None, typer.Option(envvar=TOKEN_VARIABLE, help="HTTP: the bearer token; one is made up without it.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings.")] = None,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Serve the tools until interrupted. HTTP is at /mcp; /health and /ready need no token.

    Over HTTP --json prints one line, {"url", "token"}, once it listens; the token is null where you gave it. Over stdio
    the output is the protocol's, whatever is asked.
    """
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    settings = _settings(config, backend)
    given = SecretStr(token or secrets.token_urlsafe(24)) if transport == "http" else None
    made_up = given.get_secret_value() if given is not None and not token else None

    def announce(url: str) -> None:
        # To the terminal of the one who started it, and nowhere else: the token is in no log and no file.
        if as_json:
            typer.echo(to_json({"url": url, "token": made_up}))
        elif made_up is not None:
            terminal.warn(f"token: {made_up}")
        if not terminal.is_silent:
            terminal.warn(f"serving {url}")

    asyncio.run(serve_tools(settings, os.environ, token=given, host=host, port=port, announce=announce))


@tools_app.command()
def call(
    name: Annotated[str, typer.Argument(help="The tool, such as google_search.")],
    query: Annotated[str, typer.Argument(help="What to ask it.")],
    parameter: Annotated[list[str] | None, typer.Option("--param", "-p", help="One parameter: limit=3.")] = None,
    backend: Annotated[Backend | None, typer.Option(help="Where answers come from; offline needs no key.")] = None,
    url: Annotated[str | None, typer.Option(help="Ask this server instead, such as http://127.0.0.1:8765/mcp.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings.")] = None,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Call one tool and print what a policy would learn. Exit code 1 means that the call failed."""
    settings = _settings(config, backend)
    if url is not None:
        settings = settings.model_copy(update={"remote": RemoteToolsConfig(url=url)})
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    asked = ToolCall(name=name, query=query, parameters=_parameters(parameter or []))
    with terminal.working(f"asking {name}"):
        result = asyncio.run(_call(settings, asked))
    if result.executed:
        written = "".join(f", {name}={value}" for name, value in result.executed.parameters)
        terminal.say(f"(read as {result.executed.name}{written})")
    terminal.close(result, _text(result), brief=_text(result))
    if result.status.is_error:
        raise typer.Exit(1)


async def _call(settings: ToolsConfig, asked: ToolCall) -> ToolResult:
    async with open_tools(settings, os.environ) as tools:
        return await tools.toolbox.call(asked)


def _settings(config: Path | None, backend: Backend | None) -> ToolsConfig:
    settings = load_tools_config(config) if config is not None else ToolsConfig()
    return settings if backend is None else settings.model_copy(update={"backend": backend})


def _parameters(written: list[str]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for each in written:
        name, value = parse_assignment(each, example="--param limit=3")
        pairs.append((name.lower(), value))
    return tuple(sorted(pairs))


def _text(result: ToolResult) -> str:
    if result.status.is_error:
        return f"{result.status.value}: {result.message}"
    blocks = [result.summary, *(f"{each.title} | {each.url}\n{each.text}" for each in result.snippets)]
    return "\n\n".join(block for block in blocks if block) or "no results"
