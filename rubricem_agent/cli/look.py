"""`rubricem inspect`: what a trajectory file amounts to.

`rubricem credit`: the returns and advantages of a group of rollouts, from their stage scores.

`rubricem theory credit`: where the paper's inequality on stage credit turns over, measured in the almanac.

`rubricem demo`: one whole episode, offline, its searches over MCP, stage by stage.
"""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from rubricem_agent.build.tools import open_tools, over_mcp
from rubricem_agent.build.training import run_credit_noise
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal, inert, open_out_file, plain_table
from rubricem_agent.config import ToolsConfig
from rubricem_agent.learn.credit import Credit
from rubricem_agent.learn.credit_file import CreditRequest, read_credit_file
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import FileFormatError, MissingExtraError
from rubricem_env.domain.trajectory import Trajectory, dump_trajectory, load_trajectory
from rubricem_env.env.episode import Episode
from rubricem_env.env.research_env import render_ansi
from rubricem_env.scaffold.grammar import ValidationMode
from rubricem_env.scaffold.reading import Reading, read_trajectory
from rubricem_env.testing.episodes import run_scripted_episode


def inspect(
    file: Annotated[Path, typer.Argument(help="A trajectory: one JSON object, or a JSONL file with --line.")],
    line: Annotated[int | None, typer.Option(min=1, help="Which line of a JSONL file to read, from 1.")] = None,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show the turns, stages, violations and citations of a trajectory file."""
    reading = read_trajectory(read_trajectory_file(file, line))
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    _show_reading(reading, terminal)
    rejecting = reading.rejects(ValidationMode.STRICT)
    verdict = "accepted" if not rejecting else f"rejected ({len(rejecting)} reasons)"
    terminal.close(
        summary(reading),
        {"complete": "yes" if reading.is_complete else "no", "strict mode": verdict},
        brief=verdict,
    )


def read_trajectory_file(file: Path, line: int | None = None) -> Trajectory:
    """The trajectory of a JSON file, or of one line of a JSONL file.

    Raises:
        FileFormatError: the file cannot be read, has no such line, or holds no trajectory.
    """
    try:
        text = file.read_text(encoding="utf-8", errors="surrogatepass")
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read {file}: {cause}. Give the path of a trajectory file.") from cause
    if line is None:
        rows = [row for row in text.split("\n") if row.strip()]
        if len(rows) > 1 and all(row.startswith("{") and row.rstrip().endswith("}") for row in rows[:2]):
            raise FileFormatError(f"{file} holds {len(rows)} lines; choose one trajectory with --line N.")
        return load_trajectory(text, str(file))
    # Not splitlines: a line separator such as U+2028 may stand inside a JSON string.
    lines = text.rstrip("\n").split("\n")
    if line > len(lines):
        raise FileFormatError(f"{file} has {len(lines)} lines; there is no line {line}.")
    return load_trajectory(lines[line - 1], f"{file}, line {line}")


def summary(reading: Reading) -> dict[str, Any]:
    """The reading as JSON: spans are character offsets into the joined policy text."""
    return {
        "stages": {stage.value: [list(span) for span in reading.spans.of(stage)] for stage in STAGES},
        "violations": [
            {"code": found.code.value, "turn": found.turn, "message": found.message} for found in reading.violations
        ],
        "citations": {"known": list(reading.citations.known), "unknown": list(reading.citations.unknown)},
        "answer": reading.answer,
        "complete": reading.is_complete,
        "turns": len(reading.turns),
        "ending": reading.trajectory.ending.value if reading.trajectory.ending else None,
    }


def _show_reading(reading: Reading, terminal: Terminal) -> None:
    stages = plain_table("stage", "characters", "spans", "happened")
    for stage in STAGES:
        spans = reading.spans.of(stage)
        size = sum(span.end - span.start for span in spans)
        shown = " ".join(f"{span.start}-{span.end}" for span in spans) or "-"
        stages.add_row(stage.value, str(size), shown, "yes" if reading.happened(stage) else "no")
    turns = plain_table("turn", "blocks", "action")
    for turn in reading.turns:
        action = f"{turn.call.name}: {turn.call.query[:60]}" if turn.call else ("answer" if turn.answer else "none")
        turns.add_row(str(turn.number), ", ".join(block.name for block in turn.blocks), inert(action))
    known, unknown, _ = reading.citations
    cited = f"citations: {len(known)} known, {len(unknown)} unknown{': ' + ', '.join(unknown) if unknown else ''}"
    question = inert(reading.trajectory.question) or "(no question)"
    terminal.show(f"[bold]{question}[/bold]", stages, turns, inert(cited))
    for found in reading.violations:
        terminal.show(inert(f"  {found.code.value}: {found.message}"))


def credit(
    file: Annotated[Path, typer.Argument(help='JSON: {"scores": [[plan, research, review, answer], ...]}.')],
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show what each rollout of a group earns at each stage: its return, and its advantage over the group.

    The file may also hold "valid" (true or false for each rollout), "matrix" (4 x 4, the paper's by default) and
    "mode" ("stages", or "terminal" to give every stage the answer's score).
    """
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    request = read_credit_file(file)
    earned = request.answer()
    terminal.show(_table(request, earned))
    terminal.close(
        {"returns": earned.returns.tolist(), "advantages": earned.advantages.tolist()},
        {"rollouts": len(request.valid), "masked": list(request.valid).count(False), "mode": request.mode},
        brief="\n".join(" ".join(f"{value:+.6f}" for value in row) for row in earned.advantages),
    )
    for group in earned.skipped:
        terminal.warn(str(group))


def _table(request: CreditRequest, earned: Credit) -> Table:
    table = plain_table("rollout", *(f"{stage}\nreturn, advantage" for stage in STAGES))
    for row, is_valid in enumerate(request.valid):
        cells = _cells(earned, row) if is_valid else ["masked"] * len(STAGES)
        table.add_row(str(row + 1), *cells)
    return table


def _cells(earned: Credit, row: int) -> list[str]:
    pairs = zip(earned.returns[row], earned.advantages[row], strict=True)
    return [f"{value:.3f}  {advantage:+.3f}" for value, advantage in pairs]


theory_app = typer.Typer(help="Experiments on the paper's theory, in the almanac.", no_args_is_help=True)


@theory_app.callback()
def theory() -> None:
    """Experiments on the paper's theory, in the almanac."""


@theory_app.command("credit")
def theory_credit(
    rollouts: Annotated[int, typer.Option(min=2, help="Rollouts of each question.")] = 32,
    questions: Annotated[int, typer.Option(min=1, help="Training questions to play.")] = 72,
    chance: Annotated[float, typer.Option(min=0.01, max=0.99, help="The chance of each fault.")] = 0.3,
    seed: Annotated[int, typer.Option(help="Seed of faults and noise.")] = 0,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare stage credit and terminal broadcast with the oracle gradient as the judge gets noisier."""
    run_credit_noise(
        Terminal(as_json=as_json, is_quiet=quiet), rollouts=rollouts, questions=questions, chance=chance, seed=seed
    )


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
