"""The report of evaluation runs: tables in the terminal, and one page of HTML without scripts, fonts or addresses.

A summary has the runs, the paper's two averages, paired comparisons of runs, and the published rows beside ours, each
with what makes it differ. One description of the tables serves both. Text becomes HTML in
`_row_html`, `_table_html` and `_paragraph`, which escape it.
"""

import re
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from itertools import combinations
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text as RichText

from rubricem_agent.evals.costs import cost_cells, cost_text
from rubricem_agent.evals.suite import PAPER, SUITE
from rubricem_env.domain.base import Frozen, Text
from rubricem_records.evaluations.comparison import compare
from rubricem_records.evaluations.names import name_judges, name_of, title_of
from rubricem_records.evaluations.own_rows import OWN, group_runs, joined_row, own_rows
from rubricem_records.evaluations.published_scores import PublishedTable, published_tables
from rubricem_records.evaluations.scores import JudgeScores, Scores
from rubricem_records.evaluations.statistics import RunComparison
from rubricem_records.runs.run_settings import flatten_settings

PAPER_SOURCE = "arXiv 2605.10899"
LONG = "four long-form benchmarks"
SHORT = "four short-form benchmarks"


class Average(Frozen):
    """The mean over the benchmarks of one of the paper's tables, of runs in one mode and by one substitute judge."""

    what: Text
    label: Text
    agent: Text
    judge: Text = ""
    """The substitute; empty where every benchmark has its own judge."""
    value: float | None
    """None while one of them is missing: an average over the others would not be the paper's."""
    missing: tuple[Text, ...]


class Summary(Frozen):
    """Everything that a report shows."""

    runs: tuple[Scores, ...]
    averages: tuple[Average, ...]
    comparisons: tuple[RunComparison, ...]
    not_compared: tuple[Text, ...] = ()
    """One sentence for every two runs of one benchmark that have no judge in common."""
    published: tuple[PublishedTable, ...]


def summarize(runs: Sequence[Scores], *, across_judges: bool = False) -> Summary:
    """The runs in the order given; those that have no judge in common are compared only `across_judges`."""
    runs = name_judges(runs)
    rng = np.random.default_rng(0)
    pairs = [compare(first, second, rng, across_judges=across_judges) for first, second in combinations(runs, 2)]
    return Summary(
        runs=tuple(runs),
        averages=_averages(runs),
        comparisons=tuple(pair for pair in pairs if isinstance(pair, RunComparison)),
        not_compared=tuple(pair for pair in pairs if isinstance(pair, str)),
        published=published_tables([title_of(run) for run in runs]),
    )


def percent(value: float | None) -> str:
    """Times 100, one decimal; a dash where there is no number."""
    return "-" if value is None else f"{100 * value:.1f}"


def _averages(runs: Sequence[Scores]) -> tuple[Average, ...]:
    averages = []
    groups = group_runs(runs, lambda run: run.headline.judge if run.manifest.is_substituted else "")
    for (agent, label, judge, _), group in groups.items():
        scores = {run.manifest.benchmark: run.headline.score for run in group}
        for what, is_long in ((LONG, True), (SHORT, False)):
            wanted = [entry.name for entry in SUITE.values() if entry.is_long is is_long and entry.name in PAPER]
            values = [value for name in wanted if (value := scores.get(name)) is not None]
            missing = tuple(name for name in wanted if scores.get(name) is None)
            if not values:
                continue
            value = None if missing else sum(values) / len(values)
            averages.append(Average(what=what, label=label, agent=agent, judge=judge, value=value, missing=missing))
    return tuple(averages)


class ReportTable(NamedTuple):
    """A table of the terminal and of the page."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


_QUIET = (":n_samples", ":bootstrap_std", ":std")
"""Suffixes of numbers that are shown in the row of another number."""


def _run_tables(run: Scores) -> Iterator[ReportTable]:
    """What the page alone shows of a run: every metric, how answers were found, its cost, and what it was made from."""
    for judge in run.judges:
        metrics = [_metric_row(judge, name) for name in judge.metrics if not name.endswith(_QUIET)]
        yield ReportTable(f"Judge: {judge.judge}", ("metric", "score", ""), metrics)
        yield ReportTable("As the official scorer prints it", ("name", "text"), list(judge.texts.items()))
    for heading, counts in (("answer found in", run.found), ("episode ended by", run.endings)):
        yield ReportTable("", (heading, "count"), [(which, str(count)) for which, count in counts.items()])
    yield ReportTable(
        "Cost",
        ("stage", "model", "calls", "tokens read", "tokens written", "dollars"),
        [(cost.stage, cost.model or "-", *cost_cells(cost)) for cost in run.costs],
    )
    made_from = flatten_settings(run.manifest.model_dump(mode="json", exclude={"inputs": {"ids"}}))
    yield ReportTable(
        "What it was made from", ("", ""), [(name, value.strip('"')) for name, value in made_from.items()]
    )


def _metric_row(judge: JudgeScores, name: str) -> tuple[str, str, str]:
    value = judge.metrics[name]
    count = judge.metrics.get(f"{name}:n_samples")
    deviation = judge.metrics.get(f"{name}:bootstrap_std") or judge.metrics.get(f"{name}:std")
    notes = ([f"n {count:.0f}"] if count else []) + ([f"sd {percent(deviation)}"] if deviation else [])
    # FACT counts citations per task; everything else is a share.
    is_count = name.startswith("fact:") and name != "fact:citation_accuracy"
    return name, f"{value:.2f}" if is_count and value is not None else percent(value), ", ".join(notes)


SUBSTITUTE_NOTE = "* judged by another model than the mode's own: not an official number"

OWN_PROMPTS_NOTE = (
    "own prompts: the judge was asked in our words (--prompts reads the official ones): not an official number"
)

_OVERVIEW = ("run", "mode", "judge", "metric", "score", "95 % interval", "worst case", "graded", "left out", "cost")


def _overview(summary: Summary) -> list[tuple[str, ...]]:
    """A row for every run with every judge."""
    return [
        (
            name_of(run),
            run.manifest.label,
            judge.judge,
            judge.headline,
            percent(judge.score),
            f"{percent(judge.interval.low)} to {percent(judge.interval.high)}" if judge.interval else "-",
            percent(judge.worst),
            f"{judge.graded} of {run.expected}",
            _left_out(run, judge),
            cost_text(run.costs),
        )
        for run in summary.runs
        for judge in run.judges
    ]


def _notes(summary: Summary) -> list[str]:
    """Why a number of the overview is not official, or not comparable with another one of it."""
    manifests = [run.manifest for run in summary.runs]
    notes = [
        f"{name_of(run)}: {run.empty_answers}{f'; {run.manifest.warning}' if run.manifest.warning else ''}"
        for run in summary.runs
        if run.empty_answers
    ]
    if any(manifest.is_substituted for manifest in manifests):
        notes.append(SUBSTITUTE_NOTE)
    if any(manifest.has_own_prompts for manifest in manifests):
        notes.append(OWN_PROMPTS_NOTE)
    judges: dict[str, list[str]] = {}
    for run in summary.runs:
        judges.setdefault(title_of(run), []).append(run.headline.judge)
    mixed = [
        f"{title} by {' and by '.join(dict.fromkeys(each))}" for title, each in judges.items() if len(set(each)) > 1
    ]
    if mixed:
        notes.append(f"mixed judges, whose scores do not compare: {'; '.join(mixed)}")
    return notes


def _left_out(run: Scores, judge: JudgeScores) -> str:
    counts = {
        "excluded": sum(judge.excluded.values()),
        "ungraded": sum(judge.ungraded.values()),
        "unreadable": judge.unreadable,
        "read differently": judge.read_differently,
        "unanswered": run.expected - run.answered,
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "none"


def _reasons(run: Scores) -> list[tuple[str, str, str, str]]:
    """What is not in the scores of a run or was not read: judge, what, reason and count."""
    rows = [("-", "attempt failed", reason, str(count)) for reason, count in run.failures.items()]
    for judge in run.judges:
        for what, counts in (("excluded by the mode", judge.excluded), ("ungraded: outage", judge.ungraded)):
            rows += [(judge.judge, what, reason, str(count)) for reason, count in counts.items()]
        if judge.unreadable:
            share = (
                "" if judge.unreadable_share is None else f" ({percent(judge.unreadable_share)} % of {judge.replies})"
            )
            reason = f"replies of the judge could not be read{share}"
            rows.append((judge.judge, "unreadable", reason, str(judge.unreadable)))
        if judge.read_differently:
            reason = f"the official parse reads them in another way than as one verdict (of {judge.replies})"
            rows.append((judge.judge, "read differently", reason, str(judge.read_differently)))
    return rows


def _tables(summary: Summary, *, most: int | None = None) -> Iterator[ReportTable]:
    """What follows the overview, in the terminal and on the page; `most` limits the reasons that are shown of a run."""
    left_out = [(name_of(run), *row) for run in summary.runs for row in _reasons(run)[:most]]
    yield ReportTable("Left out", ("run", "judge", "what", "reason", "count"), left_out)
    agreements = [
        (name_of(run), pair.first, pair.second, f"{100 * pair.share:.1f} %", f"{pair.kappa:.2f}", str(pair.n))
        for run in summary.runs
        for pair in run.agreements
    ]
    yield ReportTable("Agreement of judges", ("run", "first", "second", "same", "kappa", "verdicts"), agreements)
    variances = [
        (name_of(run), str(run.manifest.epochs), f"{run.variance['between']:.4f}", f"{run.variance['within']:.4f}")
        for run in summary.runs
        if run.variance is not None
    ]
    yield ReportTable("Variance over epochs", ("run", "epochs", "between examples", "within an example"), variances)
    averages = [
        (
            average.what,
            average.label,
            average.agent,
            average.judge,
            percent(average.value),
            f"missing: {', '.join(average.missing)}" if average.missing else "",
        )
        for average in summary.averages
    ]
    yield ReportTable("The paper's two averages", ("mean over", "mode", "policy", "judge", "score", ""), averages)
    comparisons = [
        (
            gap.first,
            gap.second,
            f"{100 * gap.difference:+.1f}",
            f"{percent(gap.low)} to {percent(gap.high)}",
            f"{gap.p_value:.3f}",
            str(gap.n),
            f"{gap.better}, {gap.worse}, {gap.n - gap.better - gap.worse}",
            gap.note,
        )
        for gap in summary.comparisons
    ]
    yield ReportTable(
        "Paired bootstrap, question by question",
        ("first", "second", "first minus second", "95 % interval", "p", "shared examples", "better, worse, equal", ""),
        comparisons,
    )
    for published in summary.published:
        rows = [
            (row.system, *("-" if value is None else f"{value:.1f}" for value in row.values), "; ".join(row.flags))
            for row in (*published.rows, *own_rows(summary.runs, published.columns))
        ]
        yield ReportTable(
            f"Published, percent ({published.source})", ("system", *published.columns, "not the same as ours"), rows
        )


def paper_table(runs: Sequence[Scores], number: int) -> ReportTable:
    """A table of the paper with the runs as a row of it, the highest average first; a row without one comes last."""
    wanted = [title_of(run) for run in runs]
    table = next(each for each in published_tables(wanted) if each.source == f"{PAPER_SOURCE}, Table {number}")
    rows = [*table.rows, joined_row(name_judges(runs), table.columns)]
    rows.sort(key=lambda row: (row.values[-1] is None, -(row.values[-1] or 0.0)))
    cells = [
        (row.system, *("-" if value is None else f"{value:.1f}" for value in row.values), "; ".join(row.flags))
        for row in rows
    ]
    return ReportTable(f"The paper's table {number}, percent", ("system", *table.columns, "how it was made"), cells)


def print_table(table: ReportTable, console: Console) -> None:
    """One table; our own row is bold."""
    _print_table(console, table.title, table.headings, rows=table.rows)


SHOWN_REASONS = 10


def print_summary(summary: Summary, console: Console) -> None:
    """Overview, other metrics of each run, what was left out, averages, comparisons, and the published rows."""
    _print_table(console, "Scores x100", _OVERVIEW, rows=_overview(summary))
    notes = _notes(summary)
    for run in summary.runs:
        others = [name for name in run.headline.metrics if name != run.headline.headline and not name.endswith(_QUIET)]
        if others:
            numbers = "  ".join(" ".join(_metric_row(run.headline, name)[:2]) for name in others)
            notes.append(f"{name_of(run)}: {numbers}")
    for note in notes:
        console.print(RichText(note, style="dim"))
    for title, headings, rows in _tables(summary, most=SHOWN_REASONS):
        if rows:
            _print_table(console, title, headings, rows=rows)
    for sentence in summary.not_compared:
        console.print(RichText(sentence))


def _print_table(console: Console, title: str, headings: Sequence[str], *, rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=RichText(title))
    for heading, cells in zip(headings, zip(*rows, strict=True), strict=True):
        has_numbers = all(re.fullmatch(r"[-+$]?[\d.]*", cell) for cell in cells)
        table.add_column(heading, justify="right" if has_numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(RichText, row), style="bold" if row[0].startswith(OWN) else None)
    if Measurement.get(console, console.options.update(max_width=_UNBOUNDED), table).minimum <= console.width:
        console.print(table)
        return
    # Where words do not fit, the cells of a row stand below each other: nothing is cut.
    if title:
        console.print(RichText(title, style="italic"))
    for row in rows:
        named = [(heading, cell) for heading, cell in zip(headings, row, strict=True) if cell]
        width = max(len(heading) for heading, _ in named)
        for heading, cell in named:
            console.print(Padding(RichText(f"{heading:<{width}}  {cell}"), (0, 0, 0, 2)))
        console.print()


_UNBOUNDED = 10_000

TITLE = "RubricEM evaluation"


def render_page(summary: Summary) -> str:
    """The whole page."""
    style = resources.files("rubricem_agent.evals").joinpath("report.css").read_text(encoding="utf-8")
    body = [
        f"<h1>{TITLE}</h1>",
        _paragraph("Scores times 100. Every number is shown with its mode; modes are never mixed."),
        _table_html("", _OVERVIEW, _overview(summary), css="overview"),
        *(_paragraph(note, css="warn") for note in _notes(summary)),
        *(_table_html(*table, css="notes") for table in _tables(summary)),
        *(_paragraph(sentence, css="warn") for sentence in summary.not_compared),
    ]
    for run in summary.runs:
        body.append(f"<h2>{escape(f'{name_of(run)}, mode {run.manifest.label}')}</h2>")
        state = "complete" if run.is_complete else "incomplete: run the same command to resume"
        state = run.manifest.warning or state
        css = "faint" if run.is_complete else "warn"
        body.append(_paragraph(f"{run.answered} of {run.expected} answered; {state}.", css=css))
        body += [_table_html(*table) for table in _run_tables(run)]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{TITLE}</title><style>{style}</style>'
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'


def _paragraph(text: str, *, css: str = "faint") -> str:
    return f'<p class="{css}">{escape(text)}</p>'


def _row_html(row: Sequence[str]) -> str:
    css = "own" if row[0].startswith(OWN) else ""
    return f'<tr class="{css}">{"".join(f"<td>{escape(cell)}</td>" for cell in row)}</tr>'


def _table_html(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], *, css: str = "") -> str:
    """A table under its title, in a box that scrolls by itself where it is too wide; nothing where it has no row."""
    if not rows:
        return ""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    lines = (_row_html(row) for row in rows)
    heading = f"<h3>{escape(title)}</h3>" if title else ""
    return f'{heading}<div class="scroll"><table class="{css}"><tr>{head}</tr>{"".join(lines)}</table></div>'
