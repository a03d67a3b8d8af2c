"""`rubricem demo`: play an episode in the offline world."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.command import command
from rubricem_agent.cli.output_files import open_out
from rubricem_agent.cli.terminal import Terminal
from rubricem_agent.config.tools import ToolsConfig
from rubricem_agent.wiring.tools import open_tools, over_mcp
from rubricem_env.domain.errors import ConfigError, MissingExtraError
from rubricem_env.domain.trajectory import dump_trajectory
from rubricem_env.env.episode import Episode
from rubricem_env.env.render import render_ansi
from rubricem_env.testing.episodes import run_scripted_episode


@command
def demo(
    terminal: Terminal,
    out: Annotated[Path, typer.Option(help="Where to write the trajectory.")] = Path("runs/demo/trajectory.json"),
) -> None:
    """Play a scripted research episode in the offline world and save its trajectory."""
    if out.is_dir():
        raise ConfigError(f"--out is {out}, a folder; give the path of a file, such as {out / 'trajectory.json'}.")
    open_out(out.parent)
    with terminal.working("playing an episode"):
        episode = asyncio.run(_play(terminal))
    parsed = episode.read()
    terminal.say(render_ansi(parsed, colour=terminal.colour))
    out.write_text(dump_trajectory(parsed.trajectory) + "\n", encoding="utf-8")
    cited = len(parsed.citations.known)
    terminal.close(
        {"trajectory": str(out), "turns": len(parsed.turns), "searches": episode.calls_used, "snippets_cited": cited},
        f"\n{len(parsed.turns)} turns, {episode.calls_used} searches, {cited} snippets cited.\n"
        f"Trajectory: {out}. Look into it with: rubricem inspect {out}",
        brief=str(out),
    )


async def _play(terminal: Terminal) -> Episode:
    """Call the tools over MCP where the tools extra is installed; the episode is the same without it."""
    async with open_tools(ToolsConfig(), {}) as tools:
        try:
            async with over_mcp(tools) as remote:
                return await run_scripted_episode(remote)
        except MissingExtraError as missing:
            terminal.warn(f"The tools are called in this process instead: {missing}\n")
            return await run_scripted_episode(tools.toolbox)
