"""The `rubricem` command: registers the commands and prints each error as one sentence."""

import os
from typing import Annotated

import typer

from rubricem_agent.cli.ask import ask
from rubricem_agent.cli.bank import bank_app
from rubricem_agent.cli.data import data_app
from rubricem_agent.cli.doctor import doctor
from rubricem_agent.cli.evals import eval_app
from rubricem_agent.cli.judge import calibrate, judge
from rubricem_agent.cli.look import credit, demo, init, inspect, push, report, view
from rubricem_agent.cli.parity import parity
from rubricem_agent.cli.probe import probe
from rubricem_agent.cli.terminal import run_app
from rubricem_agent.cli.tools import corpus_app, tools_app
from rubricem_agent.cli.train import train, train_verl, watch
from rubricem_env import __version__
from rubricem_env.llm import export_traces

app = typer.Typer(
    name="rubricem",
    help="Train and run deep research agents beyond verifiable rewards.",
    no_args_is_help=False,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_SETTINGS = {"ignore_unknown_options": True}
"""An unknown option of `train` is read as a setting, and refused with the way to write one."""
for command in (
    demo,
    init,
    ask,
    train,
    train_verl,
    watch,
    view,
    report,
    judge,
    calibrate,
    probe,
    credit,
    inspect,
    parity,
    push,
    doctor,
):
    app.command(context_settings=_SETTINGS if command is train else None)(command)
for name, group in zip(
    ("eval", "tools", "corpus", "bank", "data"), (eval_app, tools_app, corpus_app, bank_app, data_app), strict=True
):
    app.add_typer(group, name=name)


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
