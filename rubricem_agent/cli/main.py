"""The `rubricem` command: registers the commands and prints each error as one sentence."""

import os
from typing import Annotated

import typer

from rubricem_agent.cli.ask import ask
from rubricem_agent.cli.bank import bank_app
from rubricem_agent.cli.calibrate import calibrate
from rubricem_agent.cli.command import run_app
from rubricem_agent.cli.command_group import CommandGroup
from rubricem_agent.cli.credit import credit
from rubricem_agent.cli.data import data_app
from rubricem_agent.cli.demo import demo
from rubricem_agent.cli.doctor import doctor
from rubricem_agent.cli.evals import eval_app
from rubricem_agent.cli.export import export_app
from rubricem_agent.cli.init import init
from rubricem_agent.cli.inspect import inspect
from rubricem_agent.cli.judge import judge
from rubricem_agent.cli.model import model
from rubricem_agent.cli.parity import parity
from rubricem_agent.cli.probe import probe
from rubricem_agent.cli.push import push
from rubricem_agent.cli.report import report
from rubricem_agent.cli.tools import corpus_app, tools_app
from rubricem_agent.cli.view import view
from rubricem_env import __version__
from rubricem_env.llm import export_traces

app = typer.Typer(
    name="rubricem",
    cls=CommandGroup,
    help="Train and run deep research agents beyond verifiable rewards.",
    no_args_is_help=False,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, init, ask, view, report, judge, calibrate, probe, credit, inspect, parity, push, model, doctor):
    app.command()(command)
app.add_typer(eval_app, name="eval")
app.add_typer(tools_app, name="tools")
app.add_typer(corpus_app, name="corpus")
app.add_typer(bank_app, name="bank")
app.add_typer(data_app, name="data")
app.add_typer(export_app, name="export")


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
    """Run the command line."""
    export_traces(os.environ)
    run_app(app, name="rubricem")


if __name__ == "__main__":
    main()
