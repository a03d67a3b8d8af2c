"""`rubricem theory credit`: where the paper's inequality on stage credit turns over, measured in the almanac."""

from typing import Annotated

import typer

from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal, plain_table
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
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare stage credit and terminal broadcast with the oracle gradient as the judge gets noisier."""
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    train = [question for question in load_questions(shipped_questions_path()) if question.split == "train"][:questions]
    with terminal.progress() as bars:
        task = bars.add_task("playing the questions", total=len(train))
        groups = play_groups(
            train,
            shipped_toolbox(),
            rollouts=rollouts,
            chance=chance,
            seed=seed,
            progress=lambda done: bars.update(task, completed=done),
        )
    settings = [NoiseSetting(kind, NOISES, only, chance, seed) for kind in NoiseKind for only in (False, True)]
    found = [(setting, compare_estimators(groups, DECIDING_STAGES, setting)) for setting in settings]
    for setting, levels in found:
        _show_levels(setting, levels, terminal)
    terminal.close(
        [{**setting._asdict(), "levels": [level._asdict() for level in levels]} for setting, levels in found],
        {"questions": len(train), "rollouts of each": rollouts, "chance of a fault": chance, "seed": seed},
        brief="\n".join(f"{_name(setting)}: {line}" for setting, levels in found for line in _verdicts(levels)),
    )


def _name(setting: NoiseSetting) -> str:
    return f"{setting.kind.value} noise on {'intermediate stages' if setting.intermediate_only else 'all stages'}"


def _show_levels(setting: NoiseSetting, levels: list[NoiseLevel], terminal: Terminal) -> None:
    names = [stage for stage in STAGES if stage.value in levels[0].stage_error]
    heads = [f"{stage.value} {what}" for stage in names for what in ("distance", "angle")]
    table = plain_table("noise", *heads)
    table.title = f"{_name(setting)}: stages | terminal"
    for level in levels:
        cells = []
        for stage in names:
            name = stage.value
            cells.append(f"{level.stage_error[name]:.2f} | {level.terminal_error[name]:.2f}")
            cells.append(f"{level.stage_angle[name]:.2f} | {level.terminal_angle[name]:.2f}")
        table.add_row(f"{level.noise:.1f}", *cells)
    terminal.show(table, *(f"  {line}" for line in _verdicts(levels)))


def _verdicts(levels: list[NoiseLevel]) -> list[str]:
    """For each stage but the last, at which both estimators are the same."""
    names = [stage for stage in STAGES if stage.value in levels[0].stage_error]
    lines = []
    for stage in names[:-1]:
        at = turnover(levels, stage)
        closer = (
            "stage credit is closer throughout" if at is None else f"terminal credit is as close from noise {at:.1f} on"
        )
        lines.append(f"{stage.value}: {closer}")
    return lines
