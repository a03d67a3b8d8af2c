"""`rubricem credit`: the returns and advantages of a group of rollouts, from their stage scores."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rubricem_agent.learn.credit import Credit
from rubricem_agent.learn.credit_file import CreditRequest, read_credit_file
from rubricem_env.domain.stage import STAGES


def credit(
    file: Annotated[Path, typer.Argument(help='JSON: {"scores": [[plan, research, review, answer], ...]}.')],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Show what each rollout of a group earns at each stage: its return, and its advantage over the group.

    The file may also hold "valid" (true or false for each rollout), "matrix" (4 x 4, the paper's by default) and
    "mode" ("stages", or "terminal" to give every stage the answer's score).
    """
    request = read_credit_file(file)
    earned = request.answer()
    if as_json:
        typer.echo(json.dumps({"returns": earned.returns.tolist(), "advantages": earned.advantages.tolist()}))
    else:
        Console().print(_table(request, earned))
    for group in earned.skipped:
        typer.echo(str(group), err=True)


def _table(request: CreditRequest, earned: Credit) -> Table:
    table = Table("rollout", *(f"{stage}\nreturn, advantage" for stage in STAGES), box=None, pad_edge=False)
    for row, is_valid in enumerate(request.valid):
        cells = _cells(earned, row) if is_valid else ["masked"] * len(STAGES)
        table.add_row(str(row + 1), *cells)
    return table


def _cells(earned: Credit, row: int) -> list[str]:
    pairs = zip(earned.returns[row], earned.advantages[row], strict=True)
    return [f"{value:.3f}  {advantage:+.3f}" for value, advantage in pairs]
