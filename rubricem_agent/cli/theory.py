"""`rubricem theory credit`: where the paper's inequality on stage credit turns over, measured in the almanac."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rubricem_agent.learn.credit_noise import NoiseKind, NoiseLevel, NoiseSetting, compare_estimators, turnover
from rubricem_agent.learn.fault_rollouts import DECIDING_STAGES, play_groups
from rubricem_env.domain.stage import STAGES
from rubricem_env.env.offline import shipped_toolbox
from rubricem_env.world.jsonl import load_questions, shipped_questions_path

theory_app = typer.Typer(help="Experiments on the paper's theory, in the almanac.", no_args_is_help=True)
NOISES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@theory_app.callback()
def theory() -> None:
    """Experiments on the paper's theory, in the almanac."""


@theory_app.command("credit")
def theory_credit(
    rollouts: Annotated[int, typer.Option(min=2, help="Rollouts of each question.")] = 32,
    questions: Annotated[int, typer.Option(min=1, help="Training questions to play.")] = 72,
    chance: Annotated[float, typer.Option(min=0.01, max=0.99, help="The chance of each fault.")] = 0.3,
    seed: Annotated[int, typer.Option(help="Seed of faults and noise.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare stage credit and terminal broadcast with the oracle gradient as the judge gets noisier."""
    train = [question for question in load_questions(shipped_questions_path()) if question.split == "train"][:questions]
    with Progress(console=Console(stderr=True), transient=True, disable=as_json) as bar:
        task = bar.add_task("playing episodes", total=len(train))
        groups = play_groups(
            train,
            shipped_toolbox(),
            rollouts=rollouts,
            chance=chance,
            seed=seed,
            progress=lambda done: bar.update(task, completed=done),
        )
    settings = [NoiseSetting(kind, NOISES, only, chance, seed) for kind in NoiseKind for only in (False, True)]
    found = [(setting, compare_estimators(groups, DECIDING_STAGES, setting)) for setting in settings]
    if as_json:
        typer.echo(
            json.dumps([{**setting._asdict(), "levels": [lv._asdict() for lv in lvs]} for setting, lvs in found])
        )
        return
    for setting, levels in found:
        _print_levels(setting, levels)


def _print_levels(setting: NoiseSetting, levels: list[NoiseLevel]) -> None:
    where = "intermediate stages" if setting.intermediate_only else "all stages"
    names = [stage for stage in STAGES if stage.value in levels[0].stage_error]
    heads = [f"{stage.value} {what}" for stage in names for what in ("distance", "angle")]
    table = Table("noise", *heads, title=f"{setting.kind.value} noise on {where}: stages | terminal", box=None)
    for level in levels:
        cells = []
        for stage in names:
            name = stage.value
            cells.append(f"{level.stage_error[name]:.2f} | {level.terminal_error[name]:.2f}")
            cells.append(f"{level.stage_angle[name]:.2f} | {level.terminal_angle[name]:.2f}")
        table.add_row(f"{level.noise:.1f}", *cells)
    console = Console()
    console.print(table)
    for stage in names[:-1]:  # at the last stage both estimators are the same
        at = turnover(levels, stage)
        verdict = (
            "stage credit is closer throughout" if at is None else f"terminal credit is as close from noise {at:.1f} on"
        )
        console.print(f"  {stage.value}: {verdict}")
