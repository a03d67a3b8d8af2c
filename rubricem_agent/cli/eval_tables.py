"""What `rubricem eval` prints."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rubricem_agent.build.eval_plan import PlannedRun
from rubricem_agent.build.evals import FinishedRun
from rubricem_agent.evals.report.summary import Summary, name_of, percent
from rubricem_agent.evals.rules import DRTULU, OFFICIAL
from rubricem_agent.evals.run.money import NO_PRICE
from rubricem_agent.evals.suite import SUITE

SHOWN_FAILURES = 5


def brief_scores(summary: Summary) -> str:
    """A line a run and judge: its score times 100, and its name."""
    return "\n".join(
        f"{percent(judge.score)}\t{name_of(run)}, {run.manifest.label}, {judge.judge}"
        for run in summary.runs
        for judge in run.judges
    )


def describe_estimates(planned: PlannedRun) -> dict[str, object]:
    """A dry run as JSON values."""
    return {
        "benchmark": planned.manifest.benchmark,
        "mode": planned.manifest.label,
        "examples": len(planned.manifest.inputs.ids),
        "stages": [
            {"stage": one.what, "model": one.model, "dollars": one.dollars, **one.usage.model_dump(mode="json")}
            for one in planned.estimate()
        ],
    }


def print_estimates(planned: PlannedRun, console: Console) -> None:
    """A dry run: calls and money, stage by stage."""
    inputs = planned.manifest.inputs
    table = Table(
        title=Text(
            f"{planned.manifest.benchmark}, {planned.manifest.label}, {len(inputs.ids)} examples ({inputs.subset})"
        )
    )
    for heading in ("stage", "model", "calls", "tokens read", "tokens written", "dollars"):
        table.add_column(heading, justify="left" if heading in ("stage", "model") else "right")
    estimates = planned.estimate()
    for one in estimates:
        dollars = NO_PRICE if one.dollars is None else f"{one.dollars:.2f}"
        usage = one.usage
        table.add_row(
            one.what,
            Text(one.model),
            f"{usage.calls:,}",
            f"{usage.input_tokens:,}",
            f"{usage.output_tokens:,}",
            dollars,
        )
    console.print(table)


def known_dollars(planned: PlannedRun) -> float:
    """What the known prices of a dry run add up to."""
    return sum(one.dollars or 0.0 for one in planned.estimate())


def print_outcome(finished: FinishedRun, console: Console) -> None:
    """What was done now, what failed, and how to go on."""
    outcome = finished.outcome
    console.print(Text(f"{finished.folder}: {outcome.answered} answered and {outcome.judged} judged now"))
    for failure in outcome.failures[:SHOWN_FAILURES]:
        console.print(Text(f"  {failure}"))
    if len(outcome.failures) > SHOWN_FAILURES:
        console.print(f"  and {len(outcome.failures) - SHOWN_FAILURES} more")
    if outcome.stopped:
        console.print(Text(f"stopped: {outcome.stopped}"))
    elif outcome.failures:
        console.print("Run the same command to try these again.")


def print_suite(console: Console) -> None:
    """Every benchmark with its judges and its files."""
    table = Table(title="Benchmarks", show_lines=True)
    # What one types and what one copies: neither is broken before the narrowest of screens.
    table.add_column("name", no_wrap=True)
    table.add_column("answers", no_wrap=True)
    table.add_column("judge; ids; file", overflow="fold")
    for entry in SUITE.values():
        judge = OFFICIAL[entry.name].judge or "no judge needed"
        other = DRTULU[entry.name].judge or "no judge needed" if entry.name in DRTULU else None
        judges = judge if other in (None, judge) else f"{judge}; in mode drtulu {other}"
        table.add_row(entry.name, entry.answer_format.value, Text(f"{judges}\nids: {entry.ids}\n{entry.hub}"))
    console.print(table)
