"""`rubricem data prepare`: questions with rubrics, from a file or the hub, made into what RL trains on."""

from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.build.training_data import prepare as prepare_set
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal
from rubricem_agent.data.prepare import MAX_QUESTION_TOKENS, PreparedSet

_SHOWN = 8


def prepare(
    source: Annotated[
        str,
        typer.Argument(
            help="A JSONL, JSON or parquet file, or hf:OWNER/NAME/FILE@REVISION on the hub; its last two parts may be left out."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, one question a line.")],
    *,
    evals: Annotated[
        list[str] | None,
        typer.Option(help="JSONL of questions that are evaluated on, or BENCHMARK=FILE. May be given several times."),
    ] = None,
    max_question_tokens: Annotated[
        int, typer.Option(min=1, help="Longer questions are left out.")
    ] = MAX_QUESTION_TOKENS,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Leave out rows that cannot be read.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Turn a data set with rubrics, such as hf:rl-research/dr-tulu-rl-data, into questions to train on.

    Its rubrics become persistent ones. Questions that are evaluated on stay out: the almanac's held-out ones, and
    those of each --evals.
    """
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    with terminal.working("reading rows"):
        found = prepare_set(
            source, out, evals=evals or (), max_question_tokens=max_question_tokens, skips_broken=skip_broken
        )
    terminal.close(found, "\n".join(_sentences(found, out)), brief=str(out))


def _sentences(found: PreparedSet, out: Path) -> list[str]:
    lines = [
        f"{found.questions} questions of {found.rows} rows in {out}, with {found.rubrics} persistent rubrics, "
        f"{found.flaws} of them for flaws."
    ]
    for reason, numbers in found.left_out.items():
        rows = ", ".join(str(number) for number in numbers[:_SHOWN])
        more = ", ..." if len(numbers) > _SHOWN else ""
        lines.append(f"left out {len(numbers)}: the row {reason.value} ({rows}{more})")
    return [*lines, *(f"  {problem}" for problem in found.problems)]
