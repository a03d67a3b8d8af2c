"""The commands that show things: `inspect`, `credit`, `demo`, `init`, `view`, `report` and `push`."""

import asyncio
import json
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rubricem_agent.cli.terminal import Terminal, command, inert, open_out, plain_table, to_json, write_out
from rubricem_agent.config import ToolsConfig
from rubricem_agent.learn.credit import PAPER_MATRIX, assign_credit, check_mask, check_matrix, check_scores
from rubricem_agent.learn.credit_methods import BY_TOKENS, METHODS, Bools, CreditMode, Floats
from rubricem_agent.wiring.hub import CARD, plan_upload, send_upload
from rubricem_agent.wiring.tools import open_tools, over_mcp
from rubricem_agent.wiring.viewer import serve_viewer
from rubricem_env.domain.base import NUM_STAGES, STAGES, Span
from rubricem_env.domain.errors import ConfigError, FileFormatError, MissingExtraError, UsageError
from rubricem_env.domain.inputs import read_text, suggest_name
from rubricem_env.domain.trajectory import dump_trajectory, load_trajectory
from rubricem_env.env.episode import Episode
from rubricem_env.env.render import render_ansi
from rubricem_env.scaffold.claims import unfounded_claims
from rubricem_env.scaffold.parsed import ParsedTrajectory, parse_trajectory
from rubricem_env.testing.episodes import run_scripted_episode
from rubricem_records.atomic_files import writing
from rubricem_viewer.report import render_report

_PROJECT = Path(__file__).parents[1] / "project"


@command
def inspect(
    terminal: Terminal,
    file: Annotated[Path, typer.Argument(help="A trajectory: one JSON object, or a JSONL file with --line.")],
    line: Annotated[int | None, typer.Option(min=1, help="Which line of a JSONL file to read, from 1.")] = None,
) -> None:
    """Show the turns, stages, violations and citations of a trajectory file."""
    rows = read_trajectory_rows(file)
    if line is None and len(rows) > 1:
        raise FileFormatError(f"{file} holds {len(rows)} lines; choose one trajectory with --line N.")
    if line is not None and line not in rows:
        raise FileFormatError(f"{file} has {len(rows)} lines; there is no line {line}.")
    where = str(file) if line is None else f"{file}, line {line}"
    parsed = parse_trajectory(load_trajectory(rows[line or min(rows)], where))
    _show_reading(parsed, terminal)
    rejecting = parsed.rejections
    verdict = "accepted" if not rejecting else f"rejected ({len(rejecting)} reasons)"
    complete = "yes" if parsed.is_complete else "no"
    terminal.close(summary(parsed), {"complete": complete, "strict mode": verdict}, brief=verdict)


def read_trajectory_rows(file: Path) -> dict[int, str]:
    """The text of each trajectory of a JSONL file by its line number; a file of one JSON object is row 1.

    Raises:
        FileFormatError: the file cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8", errors="surrogatepass")
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read {file}: {cause}. Give the path of a trajectory file.") from cause
    # Not splitlines: a line separator such as U+2028 may stand inside a JSON string.
    rows = {number: row for number, row in enumerate(text.split("\n"), start=1) if row.strip()}
    is_jsonl = len(rows) > 1 and all(row[0] == "{" and row.rstrip()[-1] == "}" for row in list(rows.values())[:2])
    return rows if is_jsonl else {1: text}


def summary(parsed: ParsedTrajectory) -> dict[str, Any]:
    """The reading as JSON: spans are character offsets into the joined policy text."""
    return {
        "stages": {stage.value: [list(parsed.spans[stage])] if stage in parsed.spans else [] for stage in STAGES},
        "violations": [
            {"code": found.code.value, "turn": found.turn, "message": found.message} for found in parsed.violations
        ],
        "claims": list(unfounded_claims(parsed)),
        "citations": {"known": list(parsed.citations.known), "unknown": list(parsed.citations.unknown)},
        "answer": parsed.answer,
        "complete": parsed.is_complete,
        "turns": len(parsed.turns),
        "ending": parsed.trajectory.ending.value if parsed.trajectory.ending else None,
    }


def _show_reading(parsed: ParsedTrajectory, terminal: Terminal) -> None:
    stages = plain_table("stage", "characters", "spans", "happened")
    for stage in STAGES:
        span = parsed.spans.get(stage, Span(0, 0))
        size = span.end - span.start
        shown = f"{span.start}-{span.end}" if size else "-"
        stages.add_row(stage.value, str(size), shown, "yes" if parsed.happened(stage) else "no")
    turns = plain_table("turn", "blocks", "action")
    for turn in parsed.turns:
        action = f"{turn.call.name}: {turn.call.query[:60]}" if turn.call else ("answer" if turn.answer else "none")
        turns.add_row(str(turn.number), ", ".join(block.name for block in turn.blocks), inert(action))
    known, unknown, _ = parsed.citations
    cited = f"citations: {len(known)} known, {len(unknown)} unknown{': ' + ', '.join(unknown) if unknown else ''}"
    question = inert(parsed.trajectory.question) or "(no question)"
    violations = [inert(f"  {found.code.value}: {found.message}") for found in parsed.violations]
    terminal.show(f"[bold]{question}[/bold]", stages, turns, inert(cited), *violations)
    terminal.show("What the tools showed is what the file says; nothing was searched again.")
    for claim in unfounded_claims(parsed):
        terminal.warn(inert(f"not borne out: {claim}"))


CREDIT_KEYS = ("scores", "valid", "matrix", "mode")
CREDIT_MODES = tuple(mode for mode in METHODS if mode not in BY_TOKENS)


CreditRequest = tuple[Floats, Bools, Floats, CreditMode]
"""The scores, the valid rollouts, the matrix and the method: arguments of `assign_credit`."""


def read_credit_file(path: Path) -> CreditRequest:
    """The request in a credit file: scores written down as JSON, to see what the algorithm makes of them.

        {"scores": [[plan, research, review, answer], ...], "valid": [true, ...]?, "matrix": [[...]]?, "mode": "..."?}

    All rollouts of a file are one group. `mode` is a credit method that needs no tokens.

    Raises:
        FileFormatError: one sentence on the first thing that is wrong.
    """
    text = read_text(path, "a JSON file").removeprefix("\ufeff")
    try:
        return parse_credit_request(text)
    except FileFormatError as cause:
        raise FileFormatError(f"{path}: {cause}") from cause


def parse_credit_request(text: str) -> CreditRequest:
    """The request in a JSON text."""
    content = _load_json(text)
    for key in content:
        if key not in CREDIT_KEYS:
            raise FileFormatError(f"unknown key {key!a}; {suggest_name(key, CREDIT_KEYS)}")
    if not content.get("scores"):
        raise FileFormatError('no scores; give {"scores": [[plan, research, review, answer], ...]}.')
    mode = next((mode for mode in CREDIT_MODES if mode == content.get("mode", "stages")), None)
    if mode is None:
        raise FileFormatError(f"mode is {content['mode']!a}; it is {' or '.join(map(repr, CREDIT_MODES))}.")
    try:
        scores = check_scores(content["scores"])
        if scores.shape[1] != NUM_STAGES or any(isinstance(one, bool) for row in content["scores"] for one in row):
            raise FileFormatError("each row of scores has 4 numbers: plan, research, review, answer.")
        matrix = check_matrix(content.get("matrix", PAPER_MATRIX))
        return scores, check_mask(content.get("valid"), length=len(scores)), matrix, mode
    except UsageError as cause:
        raise FileFormatError(str(cause)) from cause


def _load_json(text: str) -> Mapping[str, Any]:
    try:
        content = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_twins)
    except json.JSONDecodeError as cause:
        raise FileFormatError(f"not JSON: {cause}.") from cause
    except FileFormatError:
        raise
    except (RecursionError, ValueError) as cause:
        raise FileFormatError("not a credit file: it nests too deeply or holds a number that is too long.") from cause
    if not isinstance(content, dict):
        raise FileFormatError(f"a credit file is a JSON object with the keys {', '.join(CREDIT_KEYS)}.")
    return content


def _refuse_constant(name: str) -> float:
    raise FileFormatError(f"{name} stands where a number between 0 and 1 is needed.")


def _refuse_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise FileFormatError("a key stands twice; say each once.")
    return content


@command
def credit(
    terminal: Terminal,
    file: Annotated[Path, typer.Argument(help='JSON: {"scores": ROWS}; each row is plan, research, review, answer.')],
) -> None:
    """Show the return and the group advantage of each rollout at each stage.

    The file may also hold "valid" (true or false for each rollout), "matrix" (4 x 4, the paper's by default) and
    "mode": "stages" (SS-GRPO), "answer_only" (answer-only GRPO), "dr_grpo", "gdpo" or "srar".
    """
    scores, valid, matrix, mode = read_credit_file(file)
    earned = assign_credit(scores, valid=valid, matrix=matrix, mode=mode)
    table = plain_table("rollout", *(f"{stage}\nreturn, advantage" for stage in STAGES))
    for row, is_valid in enumerate(valid):
        pairs = zip(earned.returns[row], earned.advantages[row], strict=True)
        cells = [f"{value:.3f}  {advantage:+.3f}" for value, advantage in pairs]
        table.add_row(str(row + 1), *(cells if is_valid else ["masked"] * len(STAGES)))
    terminal.show(table)
    terminal.close(
        {"returns": earned.returns.tolist(), "advantages": earned.advantages.tolist()},
        {"rollouts": len(valid), "masked": int((~valid).sum()), "mode": mode},
        brief="\n".join(" ".join(f"{value:+.6f}" for value in row) for row in earned.advantages),
    )
    for group in earned.skipped:
        terminal.warn(str(group))


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


@command
def init(
    terminal: Terminal, folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")]
) -> None:
    """Write a small project of your own: questions, a search engine, a judge, a config, a test. It runs as it is."""
    with writing(folder, "Name a new folder: rubricem init my_research"):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"{folder} is not empty, and nothing in it is overwritten. Name a new folder.")
        for file in sorted(_PROJECT.iterdir()):
            # The code has another suffix here, where it is no module of the package.
            name = file.name.removesuffix(".txt")
            (folder / name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    files = sorted(path.name for path in folder.iterdir())
    summary = f"{folder}: {', '.join(files)}\nPlay it: cd {folder} && python play.py"
    terminal.close({"folder": str(folder), "files": files}, summary, brief=str(folder))


async def _play(terminal: Terminal) -> Episode:
    """Call the tools over MCP where the tools extra is installed; the episode is the same without it."""
    async with open_tools(ToolsConfig(), {}) as tools:
        try:
            async with over_mcp(tools) as remote:
                return await run_scripted_episode(remote)
        except MissingExtraError as missing:
            terminal.warn(f"The tools are called in this process instead: {missing}\n")
            return await run_scripted_episode(tools.toolbox)


@command
def view(
    terminal: Terminal,
    folder: Annotated[
        Path, typer.Argument(metavar="[RUN_DIR]", help="Folder of a run, or one that holds runs.", show_default=True)
    ] = Path("runs"),
    bank: Annotated[
        Path | None, typer.Option(help="The folder of a rubric bank to show and edit beside each run.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port; 0 takes a free one. By default 8420 if it is free.")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Show runs in the browser until interrupted: curves, trajectories, rubrics, bank, evaluations.

    The server listens on this machine alone, and serves whoever has the printed address, which holds a token. With
    --json one line is printed once it listens: {"url"}.
    """

    def announce(url: str) -> None:
        # Printed for the user who started it, and nowhere else: the token is in no log and no file.
        shown = to_json({"url": url}) if terminal.as_json else url
        typer.echo(shown if terminal.is_silent else f"Showing {folder}: {url}\nStop with Ctrl-C.")
        if open_browser and not webbrowser.open(url):
            terminal.warn("no browser could be opened; open the address by hand")

    serve_viewer(folder, bank=bank, port=port, announce=announce)


@command
def report(
    terminal: Terminal,
    folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of a run, an evaluation or an ablation.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The page; RUN_DIR/report.html by default.")] = None,
) -> None:
    """Write one self-contained page: curves, a sample of attempts with their verdicts, rubrics, lessons.

    The run may still be in progress.
    """
    path = out or folder / "report.html"
    write_out(path, render_report(folder), option="-o", makes_folder=True)
    terminal.close({"page": str(path)}, f"Page: {path}", brief=str(path))


@command
def push(
    terminal: Terminal,
    source: Annotated[
        Path, typer.Argument(help="The folder of a model, a bank, a run's record or teacher data; or .npz.")
    ],
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The repository; made where it is missing.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Send it; without, show what would be sent.")] = False,
) -> None:
    """Publish on the Hugging Face hub, with a card that says what it is, from which run and which code.

    Nothing is sent without --yes. Look for private questions first: everything in the shown files can be read there.
    """
    kind, files = plan_upload(source)
    sizes = {name: len(one) if isinstance(one, bytes) else one.stat().st_size for name, one in files.items()}
    card = bytes(files[CARD]).decode()
    terminal.say(card)
    terminal.show(plain_table("file", "bytes", rows=[(inert(name), f"{size:,}") for name, size in sizes.items()]))
    sent = send_upload(kind, files, repository, private=private) if yes else ""
    document = {"repository": repository, "kind": kind, "files": sizes, "card": card, "sent": sent}
    told = f"sent: {sent}" if sent else f"nothing was sent; --yes sends these files to {repository}."
    terminal.close(document, told, brief=sent or "\n".join(files))
