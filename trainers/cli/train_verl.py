"""`rubricem train-verl`: train on a cluster, by veRL."""

from typing import Annotated

import typer

from rubricem_agent.cli.command import ProbeOption, command
from rubricem_agent.cli.terminal import Terminal

from ..verl_backend.command import DEFAULT, main
from .train import ChangesArgument


@command
def train_verl(
    terminal: Terminal,
    config: Annotated[str, typer.Argument(help="YAML, or the name of a config of the package.")] = DEFAULT,
    changes: ChangesArgument = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print memory, calls, money and hours alone.")] = False,
    assume: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Of the dry run; repeatable.")] = None,
    preflight: Annotated[bool, typer.Option("--preflight", help="List what is missing here alone.")] = False,
    no_probe: ProbeOption = False,
) -> None:
    """Train on Ray, FSDP and vLLM: the paper's recipes, or `verl_almanac_cpu` on two cores. Rerun it to resume."""
    chosen = {"--dry-run": dry_run, "--json": terminal.as_json, "--preflight": preflight, "--no-probe": no_probe}
    options = [name for name, is_chosen in chosen.items() if is_chosen]
    options += [word for change in assume or [] for word in ("--assume", change)]
    if "=" in config:  # a change, where no config is named
        config, changes = DEFAULT, [config, *(changes or [])]
    raise typer.Exit(main(["--config-name", config, *options, "--", *(changes or [])]))
