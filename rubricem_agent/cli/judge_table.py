"""A judged group as tables in a terminal: stages first, then each criterion with its marks and reasons."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from rubricem_agent.cli.terminal import inert, plain_table
from rubricem_env.domain.judgement import StageScore
from rubricem_env.domain.rubric import Polarity
from rubricem_env.domain.stage import STAGES
from rubricem_env.judge.outcomes import GroupJudgement, RolloutJudgement
from rubricem_env.judge.rubric_set import RubricSet
from rubricem_env.llm.usage import Meter

_SHORT_NAME = 40


def print_group(
    judged: GroupJudgement, names: Sequence[str], *, rubrics: RubricSet, meter: Meter, console: Console
) -> None:
    """Print everything that the scores rest on."""
    console.print(_stage_table(judged, names))
    if not judged.rubrics:
        console.print(
            "No criterion: nothing separates the attempts, or there is only one. "
            "Give further attempts at the question, or --rubrics FILE."
        )
    for rubric in sorted(judged.rubrics, key=lambda rubric: STAGES.index(rubric.stage)):
        sign = "flaw" if rubric.polarity is Polarity.NEGATIVE else "quality"
        kind = ", persistent" if rubric.persistent else ""
        console.print(f"\n[bold]{rubric.stage}: {inert(rubric.title)}[/bold] ({sign}, weight {rubric.weight:g}{kind})")
        console.print(f"  {inert(rubric.description)}", style="dim")
        for name, rollout in zip(names, judged.rollouts, strict=True):
            opinion = next((o for o in rollout.opinions if o.rubric_id == rubric.id), None)
            if opinion is not None:
                console.print(f"  {opinion.mark:g}  {inert(_short(name))}: {inert(opinion.justification)}")
    _print_notes(judged, names, rubrics=rubrics, console=console)
    _print_cost(meter, console)


def brief_scores(judged: GroupJudgement, names: Sequence[str]) -> str:
    """A line an attempt: its four stage scores and its file, for a script to read."""
    rows = zip(names, judged.rollouts, strict=True)
    return "\n".join("\t".join([*_cells(rollout), name]) for name, rollout in rows)


def _stage_table(judged: GroupJudgement, names: Sequence[str]) -> Table:
    table = plain_table("trajectory", *(stage.value for stage in STAGES))
    for name, rollout in zip(names, judged.rollouts, strict=True):
        table.add_row(inert(_short(name)), *_cells(rollout))
    return table


def _cells(rollout: RolloutJudgement) -> list[str]:
    cells = []
    for stage in STAGES:
        outcome = rollout.judgement.outcome(stage)
        if isinstance(outcome, StageScore):
            cells.append(f"{outcome.score:.2f}{' (missing)' if outcome.missing else ''}")
        else:
            cells.append(outcome.reason.value)
    return cells


def _print_notes(judged: GroupJudgement, names: Sequence[str], *, rubrics: RubricSet, console: Console) -> None:
    notes = [f"not let in: {refused}" for refused in judged.refused]
    if judged.proposal_failure:
        notes.append(f"no new criteria: {judged.proposal_failure}")
    for name, rollout in zip(names, judged.rollouts, strict=True):
        if rollout.failure:
            notes.append(f"{_short(name)}: {rollout.failure}")
        if rollout.bait:
            notes.append(f"{_short(name)} holds text that is meant for a judge: {', '.join(rollout.bait)}")
    retired = len(rubrics.archive)
    if retired:
        notes.append(f"{retired} criteria retired after scoring, {len(rubrics.active)} kept for the next time")
    if notes:
        console.print()
    for note in notes:
        console.print(inert(note), style="dim")


def _print_cost(meter: Meter, console: Console) -> None:
    for phase, spent in sorted(meter.by_phase.items()):
        money = "price unknown" if spent.unpriced_calls else f"${spent.dollars:.4f}"
        usage = spent.usage
        console.print(
            f"{phase}: {usage.calls} calls, {usage.input_tokens} tokens in, {usage.output_tokens} out, {money}",
            highlight=False,
        )


def _short(name: str) -> str:
    return name if len(name) <= _SHORT_NAME else "…" + name[1 - _SHORT_NAME :]
