"""`rubricem demo`: one whole episode, offline, its searches over MCP, stage by stage."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.build.tools import open_tools, over_mcp
from rubricem_agent.cli.out_folder import open_out_file
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal
from rubricem_agent.config.tools import ToolsConfig
from rubricem_env.domain.errors import MissingExtraError
from rubricem_env.domain.trajectory_json import dump_trajectory
from rubricem_env.env.ansi import render_ansi
from rubricem_env.env.episode import Episode
from rubricem_env.testing.episodes import run_scripted_episode

DEFAULT_OUT = Path("runs/demo/trajectory.json")


def demo(
    out: Annotated[Path, typer.Option(help="Where to write the trajectory.")] = DEFAULT_OUT,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Play a scripted research episode in the offline world and save its trajectory."""
    open_out_file(out)
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    with terminal.working("playing an episode"):
        episode = asyncio.run(_play())
    reading = episode.read()
    terminal.say(render_ansi(reading, colour=terminal.colour))
    out.write_text(dump_trajectory(reading.trajectory) + "\n", encoding="utf-8")
    cited = len(reading.citations.known)
    terminal.close(
        {"trajectory": str(out), "turns": len(reading.turns), "searches": episode.calls_used, "snippets_cited": cited},
        f"\n{len(reading.turns)} turns, {episode.calls_used} searches, {cited} snippets cited.\n"
        f"Trajectory: {out}. Look into it with: rubricem inspect {out}",
        brief=str(out),
    )


async def _play() -> Episode:
    """Over the whole protocol where the tools extra is installed; the episode is the same without it."""
    async with open_tools(ToolsConfig(), {}) as tools:
        try:
            async with over_mcp(tools) as remote:
                return await run_scripted_episode(remote)
        except MissingExtraError as missing:
            typer.echo(f"The tools are called in this process instead: {missing}\n", err=True)
            return await run_scripted_episode(tools.toolbox)
