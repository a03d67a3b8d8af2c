"""The `rubricem` command: collects the commands and turns a user's mistake into one sentence."""

import sys
from typing import Annotated

import typer

from rubricem_agent.cli.bank import bank_app
from rubricem_agent.cli.calibrate import calibrate
from rubricem_agent.cli.credit import credit
from rubricem_agent.cli.demo import demo
from rubricem_agent.cli.doctor import doctor
from rubricem_agent.cli.inspect import inspect
from rubricem_agent.cli.judge import judge
from rubricem_agent.cli.parity import parity
from rubricem_agent.cli.teach import data_app
from rubricem_agent.cli.theory import theory_app
from rubricem_env import __version__
from rubricem_env.domain.errors import RubricEMError, UsageError

app = typer.Typer(
    name="rubricem",
    help="Train and run deep research agents beyond verifiable rewards.",
    no_args_is_help=False,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(calibrate)
app.command()(credit)
app.command()(demo)
app.command()(doctor)
app.command()(inspect)
app.command()(judge)
app.command()(parity)
app.add_typer(bank_app, name="bank")
app.add_typer(data_app, name="data")
app.add_typer(theory_app, name="theory")


@app.callback()
def rubricem(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Train and run deep research agents beyond verifiable rewards.

    Start with `rubricem demo` (no key, no GPU, no network), then `rubricem doctor`.
    """
    if version:
        typer.echo(f"rubricem {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line: one sentence on stderr for a mistake (exit code 2) or a failure of the world (1)."""
    try:
        app()
    except RubricEMError as problem:
        sys.stderr.write(f"rubricem: {problem}\n")
        sys.exit(2 if isinstance(problem, UsageError) else 1)


if __name__ == "__main__":
    main()
