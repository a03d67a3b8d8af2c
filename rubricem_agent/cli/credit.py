"""`rubricem credit`: show the returns and advantages of scores in a file."""

from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.command import command
from rubricem_agent.cli.credit_file import read_credit_file
from rubricem_agent.cli.terminal import Terminal, plain_table
from rubricem_agent.learn.credit import assign_credit
from rubricem_env.domain.base import STAGES


@command
def credit(
    terminal: Terminal,
    file: Annotated[Path, typer.Argument(help='JSON: {"scores": ROWS}; each row is plan, research, review, answer.')],
) -> None:
    """Show the return and the group advantage of each rollout at each stage.

    The file may also hold "valid" (true or false for each rollout), "matrix" (a row for each stage, the paper's by
    default) and "mode": "stages" (SS-GRPO), "answer_only" (answer-only GRPO), "dr_grpo", "gdpo" or "srar".
    """
    scores, valid, matrix, mode = read_credit_file(file)
    earned = assign_credit(scores, valid=valid, matrix=matrix, mode=mode)
    stages = STAGES if scores.shape[1] == len(STAGES) else range(1, scores.shape[1] + 1)
    table = plain_table("rollout", *(f"{stage}\nreturn, advantage" for stage in stages))
    for row, is_valid in enumerate(valid):
        pairs = zip(earned.returns[row], earned.advantages[row], strict=True)
        cells = [f"{value:.3f}  {advantage:+.3f}" for value, advantage in pairs]
        table.add_row(str(row + 1), *(cells if is_valid else ["masked"] * len(stages)))
    terminal.show(table)
    terminal.close(
        {"returns": earned.returns.tolist(), "advantages": earned.advantages.tolist()},
        {"rollouts": len(valid), "masked": int((~valid).sum()), "mode": mode},
        brief="\n".join(" ".join(f"{value:+.6f}" for value in row) for row in earned.advantages),
    )
    for group in earned.skipped:
        terminal.warn(str(group))
