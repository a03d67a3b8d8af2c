"""The report of evaluation runs: tables in the terminal, and one page of HTML without scripts, fonts or addresses.

A summary has the runs, the paper's two averages, paired comparisons of runs, and the published rows beside ours, each
with what makes it differ. One description of the tables serves both. Text becomes HTML in `_table_html` and `_paragraph`, which escape it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from importlib import resources
from itertools import combinations
from pathlib import PurePath

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text as RichText

from rubricem_agent.evals.manifest import judge_names_in
from rubricem_agent.evals.records import cost_cells, cost_text
from rubricem_agent.evals.scores import NO_JUDGE, JudgeScores, PublishedScores, PublishedTable, Scores, published_tables
from rubricem_agent.evals.statistics import RunComparison, paired_bootstrap
from rubricem_agent.evals.suite import PAPER, SUITE, find_benchmark
from rubricem_agent.learn.metrics import flatten_settings
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.llm.prices import SHUT_DOWN

OWN = "this run: "
"""Begins the name of our own row among published ones."""


LONG, SHORT = "four long-form benchmarks", "four short-form benchmarks"


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
    pairs = [compare(one, other, rng, across_judges=across_judges) for one, other in combinations(runs, 2)]
    return Summary(
        runs=tuple(runs),
        averages=_averages(runs),
        comparisons=tuple(one for one in pairs if isinstance(one, RunComparison)),
        not_compared=tuple(one for one in pairs if isinstance(one, str)),
        published=published_tables([_title(run) for run in runs]),
    )


def name_judges(runs: Sequence[Scores]) -> list[Scores]:
    """The runs with their judges named by the model alone, or in full where two judges share the model."""
    names = judge_names_in(judge.judge for run in runs for judge in run.judges)
    return [
        run.model_copy(
            update={
                "judges": tuple(judge.model_copy(update={"judge": names[judge.judge]}) for judge in run.judges),
                "agreements": tuple(
                    pair.model_copy(update={"first": names[pair.first], "second": names[pair.second]})
                    for pair in run.agreements
                ),
            }
        )
        for run in runs
    ]


def _title(run: Scores) -> str:
    return find_benchmark(run.manifest.benchmark).title


def name_of(run: Scores) -> str:
    """How a run is named in a report."""
    return f"{_title(run)}, {agent_name(run)}"


def _group_runs(runs: Iterable[Scores], judge_of: Callable[[Scores], str]) -> dict[tuple[str, ...], list[Scores]]:
    """The runs of each agent, mode and judge, in this order; a second run of a benchmark is in a group of its own."""
    groups: dict[tuple[str, ...], list[Scores]] = {}
    seen: Counter[tuple[str, ...]] = Counter()
    for run in runs:
        key = (agent_name(run), run.manifest.label, judge_of(run))
        number = seen[*key, run.manifest.benchmark]
        seen[*key, run.manifest.benchmark] += 1
        groups.setdefault((*key, str(number)), []).append(run)
    return groups


def own_rows(summary: Summary, columns: Sequence[str]) -> list[PublishedScores]:
    """Our runs as rows of a published table: one for each agent, mode and judge with a number for one of the columns.

    A second run of a benchmark has a row of its own.
    """
    shown = [run for run in summary.runs if _title(run) in columns]
    rows = []
    for (agent, label, judge, _), runs in _group_runs(shown, lambda run: run.headline.judge).items():
        judged: tuple[str, ...] = () if judge == NO_JUDGE else (f"judged by {judge}",)
        published = dict.fromkeys(lifetime(run.manifest.rules.judge) for run in runs if run.manifest.is_substituted)
        judged += (f"mixed judges: the published rows are of {'; '.join(published)}",) if published else ()
        scores = {_title(run): run.headline.score for run in runs}
        measured = [scores.get(column) for column in columns[:-1]]
        if None not in measured:
            # The last column of both tables is the mean of the others.
            scores[columns[-1]] = sum(value for value in measured if value is not None) / len(measured)
        sizes = "; ".join(f"{_title(run)} n {run.headline.graded} ({run.manifest.inputs.subset})" for run in runs)
        values = tuple(None if (score := scores.get(column)) is None else 100 * score for column in columns)
        rows.append(PublishedScores(system=f"{OWN}{agent}", values=values, flags=(f"mode {label}; {sizes}", *judged)))
    return rows


def agent_name(run: Scores) -> str:
    """Policy, style and memory in short; a file of answers by its name."""
    agent = run.manifest.agent
    kind, colon, rest = agent.policy.partition(":")
    policy = f"{kind}:{PurePath(rest).name}" if kind in ("file", "local") and colon else agent.policy
    options = [agent.style, f"reuse {agent.reuse}" if agent.reuse != "none" else ""]
    options.append(f"{agent.attempts} attempts" if agent.attempts > 1 else "")
    return f"{policy} ({', '.join(filter(None, options))})"


def percent(value: float | None) -> str:
    """Times 100, one decimal; a dash where there is no number."""
    return "-" if value is None else f"{100 * value:.1f}"


def _averages(runs: Sequence[Scores]) -> tuple[Average, ...]:
    averages = []
    groups = _group_runs(runs, lambda run: run.headline.judge if run.manifest.is_substituted else "")
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


def compare(
    first: Scores, second: Scores, rng: np.random.Generator, *, across_judges: bool = False
) -> RunComparison | str | None:
    """Question by question, by the first judge of both; a sentence where no judge in the same words scored both.

    None where the runs are of two benchmarks or modes, or share no example.
    """
    if (first.manifest.benchmark, first.manifest.mode) != (second.manifest.benchmark, second.manifest.mode):
        return None
    if not (first.judges and second.judges):
        return None
    theirs = {judge.judge: judge for judge in second.judges}
    one = next((judge for judge in first.judges if judge.judge in theirs), first.headline)
    other = theirs.get(one.judge, second.headline)
    if not one.per_example.keys() & other.per_example.keys():
        return None
    names = (_judged_name(first, one), _judged_name(second, other))
    notes = [ACROSS_JUDGES] * (one.judge != other.judge)
    notes += [ACROSS_PROMPTS] * (first.manifest.has_own_prompts != second.manifest.has_own_prompts)
    if notes and not across_judges:
        lack = "no judge in common" if one.judge != other.judge else "not been asked in the same words"
        return (
            f"not compared: {names[0]} and {names[1]} have {lack}, so that a difference would be the judges' as well. "
            "Judge both by one, or use --across-judges."
        )
    gap = paired_bootstrap(one.per_example, other.per_example, rng=rng, names=names)
    return gap.model_copy(update={"note": "; ".join(notes)})


ACROSS_PROMPTS = "own and official judge prompts: not a difference of policies alone"
ACROSS_JUDGES = "two judges: not a difference of policies alone"


def _judged_name(run: Scores, judge: JudgeScores) -> str:
    return name_of(run) if judge.judge == NO_JUDGE else f"{name_of(run)}, judged by {judge.judge}"


ReportTable = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, headings and rows."""
_QUIET = (":n_samples", ":bootstrap_std", ":std")
"""Suffixes of numbers that are shown in the row of another number."""


def _run_tables(run: Scores) -> Iterator[ReportTable]:
    """What the page alone shows of a run: every metric, how answers were found, its cost, and what it was made from."""
    for judge in run.judges:
        metrics = [_metric_row(judge, name) for name in judge.metrics if not name.endswith(_QUIET)]
        yield f"Judge: {judge.judge}", ("metric", "score", ""), metrics
        yield "As the official scorer prints it", ("name", "text"), list(judge.texts.items())
    for heading, counts in (("answer found in", run.found), ("episode ended by", run.endings)):
        yield "", (heading, "count"), [(which, str(count)) for which, count in counts.items()]
    yield (
        "Cost",
        ("stage", "model", "calls", "tokens read", "tokens written", "dollars"),
        [(cost.stage, cost.model or "-", *cost_cells(cost)) for cost in run.costs],
    )
    made_from = flatten_settings(run.manifest.model_dump(mode="json", exclude={"inputs": {"ids"}}))
    yield "What it was made from", ("", ""), [(name, value.strip('"')) for name, value in made_from.items()]


def _metric_row(judge: JudgeScores, name: str) -> tuple[str, str, str]:
    value, count = judge.metrics[name], judge.metrics.get(f"{name}:n_samples")
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
    notes = [SUBSTITUTE_NOTE] * any(one.is_substituted for one in manifests)
    notes += [OWN_PROMPTS_NOTE] * any(one.has_own_prompts for one in manifests)
    judges: dict[str, list[str]] = {}
    for run in summary.runs:
        judges.setdefault(_title(run), []).append(run.headline.judge)
    mixed = [
        f"{title} by {' and by '.join(dict.fromkeys(each))}" for title, each in judges.items() if len(set(each)) > 1
    ]
    return notes + [f"mixed judges, whose scores do not compare: {'; '.join(mixed)}"] * bool(mixed)


def lifetime(judge: str) -> str:
    """A judge with the day until which it was or will be served, in words; the judge alone where no day is announced."""
    day, successor = SHUT_DOWN.get(judge, ("", ""))
    return f"{judge}, served until {day} (successor {successor})" if day else judge


def _left_out(run: Scores, judge: JudgeScores) -> str:
    counts = {
        "excluded": sum(judge.excluded.values()),
        "ungraded": sum(judge.ungraded.values()),
        "unreadable": judge.unreadable,
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
    return rows


def _tables(summary: Summary, *, most: int | None = None) -> Iterator[ReportTable]:
    """What follows the overview, in the terminal and on the page; `most` limits the reasons that are shown of a run."""
    left_out = [(name_of(run), *row) for run in summary.runs for row in _reasons(run)[:most]]
    yield "Left out", ("run", "judge", "what", "reason", "count"), left_out
    agreements = [
        (name_of(run), pair.first, pair.second, f"{100 * pair.share:.1f} %", f"{pair.kappa:.2f}", str(pair.n))
        for run in summary.runs
        for pair in run.agreements
    ]
    yield "Agreement of judges", ("run", "first", "second", "same", "kappa", "verdicts"), agreements
    variances = [
        (name_of(run), str(run.manifest.epochs), f"{run.variance['between']:.4f}", f"{run.variance['within']:.4f}")
        for run in summary.runs
        if run.variance is not None
    ]
    yield "Variance over epochs", ("run", "epochs", "between examples", "within an example"), variances
    averages = [
        (
            one.what,
            one.label,
            one.agent,
            one.judge,
            percent(one.value),
            f"missing: {', '.join(one.missing)}" if one.missing else "",
        )
        for one in summary.averages
    ]
    yield "The paper's two averages", ("mean over", "mode", "policy", "judge", "score", ""), averages
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
    yield (
        "Paired bootstrap, question by question",
        ("first", "second", "first minus second", "95 % interval", "p", "shared examples", "better, worse, equal", ""),
        comparisons,
    )
    for published in summary.published:
        rows = [
            (row.system, *("-" if value is None else f"{value:.1f}" for value in row.values), "; ".join(row.flags))
            for row in (*published.rows, *own_rows(summary, published.columns))
        ]
        yield f"Published, percent ({published.source})", ("system", *published.columns, "not the same as ours"), rows


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
        table.add_column(heading, justify="right" if has_numbers else "left")
    for row in rows:
        table.add_row(*map(RichText, row), style="bold" if row[0].startswith(OWN) else None)
    console.print(table)


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


def _table_html(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], *, css: str = "") -> str:
    """A table under its title, in a box that scrolls by itself where it is too wide; nothing where it has no row."""
    if not rows:
        return ""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    lines = (
        f'<tr class="{"own" if row[0].startswith(OWN) else ""}">{"".join(f"<td>{escape(cell)}</td>" for cell in row)}</tr>'
        for row in rows
    )
    heading = f"<h3>{escape(title)}</h3>" if title else ""
    return f'{heading}<div class="scroll"><table class="{css}"><tr>{head}</tr>{"".join(lines)}</table></div>'
