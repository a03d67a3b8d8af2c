"""A summary as tables in the terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text as RichText

from rubricem_agent.evals.report.published import PublishedTable
from rubricem_agent.evals.report.summary import Summary, interval_text, name_of, own_rows, percent
from rubricem_agent.evals.run.money import cost_text
from rubricem_agent.evals.scores import Scores

SUBSTITUTE_NOTE = "* judged by another model than the mode's own: not an official number"


def print_summary(summary: Summary, console: Console) -> None:
    """Overview, details of each run, comparisons, averages, and the published rows."""
    console.print(_overview(summary))
    if any(run.manifest.is_substituted for run in summary.runs):
        console.print(RichText(SUBSTITUTE_NOTE, style="dim"))
    for run in summary.runs:
        _print_details(run, console)
    for gap in summary.comparisons:
        sign = f"{gap.first} minus {gap.second}: {100 * gap.difference:+.1f}"
        console.print(RichText(f"{sign} ({percent(gap.low)} to {percent(gap.high)}, p {gap.p_value:.3f}, n {gap.n})"))
    for average in summary.averages:
        if average.value is not None:
            console.print(RichText(f"mean of the {average.what}, {average.label}: {percent(average.value)}"))
    for table in summary.published:
        console.print(_published(table, summary))


def _overview(summary: Summary) -> Table:
    table = Table(title="Scores x100")
    for heading in ("run", "mode", "judge", "metric", "score", "95 % interval", "worst case", "n", "left out", "cost"):
        table.add_column(heading, justify="right" if heading in ("score", "worst case", "n", "cost") else "left")
    for run in summary.runs:
        for judge in run.judges:
            table.add_row(
                RichText(name_of(run)),
                run.manifest.label,
                RichText(judge.judge),
                judge.headline,
                percent(judge.score),
                interval_text(judge),
                percent(judge.worst),
                f"{judge.graded}/{run.expected}",
                _left_out(run, sum(judge.excluded.values()), ungraded=sum(judge.ungraded.values())),
                cost_text(run.costs),
            )
    return table


def _left_out(run: Scores, excluded: int, *, ungraded: int) -> str:
    parts = ((excluded, "excluded"), (ungraded, "ungraded"), (run.expected - run.answered, "unanswered"))
    return ", ".join(f"{count} {what}" for count, what in parts if count) or "none"


def _print_details(run: Scores, console: Console) -> None:
    judge = run.headline
    others = {name: value for name, value in judge.metrics.items() if name != judge.headline and ":n_" not in name}
    line = "  ".join(f"{name} {percent(value)}" for name, value in others.items() if ":bootstrap" not in name)
    if line:
        console.print(RichText(f"{name_of(run)}: {line}", style="dim"))
    for what, reasons in (("excluded", judge.excluded), ("ungraded", judge.ungraded), ("failed", run.failures)):
        for reason, count in list(reasons.items())[:5]:
            console.print(RichText(f"  {count} {what}: {reason}"))
    if judge.unreadable:
        console.print(RichText(f"  {judge.unreadable} replies of the judge could not be read"))
    for pair in run.agreements:
        kappa = f"{100 * pair.share:.1f} % the same, kappa {pair.kappa:.2f}, n {pair.n}"
        console.print(RichText(f"  {pair.first} and {pair.second}: {kappa}"))
    if run.variance is not None:
        split = f"between examples {run.variance.between:.4f}, within {run.variance.within:.4f}"
        console.print(RichText(f"  variance over {run.manifest.epochs} epochs: {split}"))


def _published(published: PublishedTable, summary: Summary) -> Table:
    table = Table(title=RichText(f"Published, percent ({published.source})"))
    table.add_column("system")
    for column in published.columns:
        table.add_column(column, justify="right")
    table.add_column("not the same as ours")
    for row in published.rows:
        values = ["-" if value is None else f"{value:.1f}" for value in row.values]
        table.add_row(RichText(row.system), *values, RichText("; ".join(row.flags)))
    for own in own_rows(summary, published.columns):
        cells = [percent(own.scores[column]) if column in own.scores else "" for column in published.columns]
        table.add_row(RichText(own.system), *cells, RichText(own.note), style="bold")
    return table
