"""`rubricem inspect`: show what a trajectory file holds."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rubricem_agent.cli.command import command
from rubricem_agent.cli.terminal import Terminal, inert, plain_table
from rubricem_env.domain.base import Span
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.scaffold.claims import unfounded_claims
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_records.rollouts.attempts import load_attempt, read_rows


@command
def inspect(
    terminal: Terminal,
    file: Annotated[Path, typer.Argument(help="A trajectory or ATIF: one JSON object, or JSON lines with --line.")],
    line: Annotated[int | None, typer.Option(min=1, help="Which line of a JSONL file to read, from 1.")] = None,
) -> None:
    """Show the turns, stages, violations and citations of a trajectory file."""
    rows = read_rows(file)
    if line is None and len(rows) > 1:
        raise FileFormatError(f"{file} holds {len(rows)} lines; choose one trajectory with --line N.")
    if line is not None and line not in rows:
        raise FileFormatError(f"{file} has {len(rows)} lines; there is no line {line}.")
    where = str(file) if line is None else f"{file}, line {line}"
    parsed = load_attempt(rows[line or min(rows)], where).entry.rollout.parsed
    _show_parsed(parsed, terminal)
    rejecting = parsed.rejections
    verdict = "accepted" if not rejecting else f"rejected ({len(rejecting)} reasons)"
    complete = "yes" if parsed.is_complete else "no"
    terminal.close(summary(parsed), {"complete": complete, "strict mode": verdict}, brief=verdict)


def summary(parsed: ParsedTrajectory) -> dict[str, Any]:
    """The parsed trajectory as JSON: spans are character offsets into the joined policy text."""
    return {
        "stages": {stage: [list(parsed.spans[stage])] if stage in parsed.spans else [] for stage in parsed.stages},
        "violations": [
            {"code": violation.code.value, "turn": violation.turn, "message": violation.message}
            for violation in parsed.violations
        ],
        "claims": list(unfounded_claims(parsed)),
        "citations": {"known": list(parsed.citations.known), "unknown": list(parsed.citations.unknown)},
        "answer": parsed.answer,
        "complete": parsed.is_complete,
        "turns": len(parsed.turns),
        "ending": parsed.trajectory.ending.value if parsed.trajectory.ending else None,
    }


def _show_parsed(parsed: ParsedTrajectory, terminal: Terminal) -> None:
    stages = plain_table("stage", "characters", "spans", "happened")
    for stage in parsed.stages:
        span = parsed.spans.get(stage, Span(0, 0))
        size = span.end - span.start
        shown = f"{span.start}-{span.end}" if size else "-"
        stages.add_row(stage, str(size), shown, "yes" if parsed.happened(stage) else "no")
    turns = plain_table("turn", "blocks", "action")
    for turn in parsed.turns:
        action = f"{turn.call.name}: {turn.call.query[:60]}" if turn.call else ("answer" if turn.answer else "none")
        turns.add_row(str(turn.number), ", ".join(block.name for block in turn.blocks), inert(action))
    known, unknown, _ = parsed.citations
    cited = f"citations: {len(known)} known, {len(unknown)} unknown"
    if unknown:
        cited += f": {', '.join(unknown)}"
    question = inert(parsed.trajectory.question) or "(no question)"
    violations = [inert(f"  {violation.code.value}: {violation.message}") for violation in parsed.violations]
    terminal.show(f"[bold]{question}[/bold]", stages, turns, inert(cited), *violations)
    terminal.show("What the tools showed is what the file says; nothing was searched again.")
    for claim in unfounded_claims(parsed):
        terminal.warn(inert(f"not borne out: {claim}"))
