"""`rubricem credit`: the returns and advantages of a group of rollouts, from their stage scores."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal, plain_table
from rubricem_agent.learn.credit import Credit
from rubricem_agent.learn.credit_file import CreditRequest, read_credit_file
from rubricem_env.domain.stage import STAGES


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
