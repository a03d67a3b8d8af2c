"""The report of evaluation runs: tables in the terminal, and one page of HTML without scripts, fonts or addresses.

A summary has the runs, the paper's two averages, paired comparisons of runs, and the published rows beside ours, each
with what makes it differ. Text becomes HTML in `show` alone, which escapes it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import resources
from itertools import combinations
from pathlib import PurePath

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text as RichText

from rubricem_agent.evals.manifest import EvaluationManifest, judge_names_in
from rubricem_agent.evals.records import NO_PRICE, cost_text
from rubricem_agent.evals.scores import (
    NO_JUDGE,
    JudgeScores,
    PublishedScores,
    PublishedTable,
    Scores,
    published_tables,
)
from rubricem_agent.evals.statistics import RunComparison, paired_bootstrap
from rubricem_agent.evals.suite import PAPER, SUITE, find_benchmark
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.llm.usage import SHUT_DOWN


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def show(value: object) -> Markup:
    """Any value as escaped text; markup unchanged."""
    return value if isinstance(value, Markup) else Markup(escape(str(value)))


def element(name: str, *content: object, css: str = "") -> Markup:
    """An element around its content."""
    opening = f'{name} class="{escape(css)}"' if css else name
    return Markup(f"<{opening}>{''.join(map(show, content))}</{name}>")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, css: str = "") -> Markup:
    """A table in a box that scrolls by itself where it is too wide."""
    head = element("tr", *(element("th", heading) for heading in headings))
    body = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    return element("div", element("table", element("thead", head), element("tbody", *body), css=css), css="scroll")


def interval_bar(judge: JudgeScores) -> Markup:
    """A score from 0 to 1 on a scale, with its interval; values outside the scale are drawn at its end."""
    spread = judge.interval
    if judge.score is None or spread is None:
        return Markup("")
    at, start, end = (min(1.0, max(0.0, x)) * 100 for x in (judge.score, spread.low, spread.high))
    return Markup(
        '<svg width="108" height="14" viewBox="-4 0 108 14" role="img" aria-hidden="true">'
        '<rect class="scale" x="0" y="6" width="100" height="2"/>'
        f'<rect class="range" x="{start:.1f}" y="4" width="{max(1.0, end - start):.1f}" height="6"/>'
        f'<circle class="point" cx="{at:.1f}" cy="7" r="4"/></svg>'
    )


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
    comparisons, not_compared = _compare(runs, np.random.default_rng(0), across_judges=across_judges)
    return Summary(
        runs=tuple(runs),
        averages=_averages(runs),
        comparisons=tuple(comparisons),
        not_compared=tuple(not_compared),
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


def own_rows(summary: Summary, columns: Sequence[str]) -> list[PublishedScores]:
    """Our runs as rows of a published table: one for each agent, mode and judge with a number for one of the columns.

    A second run of a benchmark has a row of its own.
    """
    groups: dict[tuple[str, str, str, int], list[Scores]] = {}
    seen: Counter[tuple[str, str, str, str]] = Counter()
    for run in summary.runs:
        if _title(run) in columns:
            key = (agent_name(run), run.manifest.label, run.headline.judge)
            groups.setdefault((*key, seen[*key, _title(run)]), []).append(run)
            seen[*key, _title(run)] += 1
    rows = []
    for (agent, label, judge, _), runs in groups.items():
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


def unreadable_text(judge: JudgeScores) -> str:
    """How many replies of the judge hold no verdict, with their share where it is known."""
    share = "" if judge.unreadable_share is None else f" ({percent(judge.unreadable_share)} % of {judge.replies})"
    return f"{judge.unreadable} replies of the judge could not be read{share}"


def interval_text(judge: JudgeScores) -> str:
    """The interval of a judge's score; a dash where there is none."""
    spread = judge.interval
    return "-" if spread is None else f"{percent(spread.low)} to {percent(spread.high)}"


def _averages(runs: Sequence[Scores]) -> tuple[Average, ...]:
    groups: dict[tuple[str, str, str, int], dict[str, float | None]] = {}
    seen: Counter[tuple[str, str, str, str]] = Counter()
    for run in runs:
        name = run.manifest.benchmark
        key = (run.manifest.label, agent_name(run), run.headline.judge if run.manifest.is_substituted else "")
        # A second run of a benchmark belongs to another average.
        groups.setdefault((*key, seen[*key, name]), {})[name] = run.headline.score
        seen[*key, name] += 1
    averages = []
    for (label, agent, judge, _), scores in groups.items():
        for what, is_long in ((LONG, True), (SHORT, False)):
            wanted = [entry.name for entry in SUITE.values() if entry.is_long is is_long and entry.name in PAPER]
            values = [value for name in wanted if (value := scores.get(name)) is not None]
            missing = tuple(name for name in wanted if scores.get(name) is None)
            if not values:
                continue
            value = None if missing else sum(values) / len(values)
            averages.append(Average(what=what, label=label, agent=agent, judge=judge, value=value, missing=missing))
    return tuple(averages)


def _compare(
    runs: Sequence[Scores], rng: np.random.Generator, *, across_judges: bool
) -> tuple[list[RunComparison], list[str]]:
    """Every two runs that can be compared, and a sentence for every two that can only be compared across judges."""
    pairs = [compare(one, other, rng, across_judges=across_judges) for one, other in combinations(runs, 2)]
    return [one for one in pairs if isinstance(one, RunComparison)], [one for one in pairs if isinstance(one, str)]


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


_QUIET = (":n_samples", ":bootstrap_std", ":std")
"""Suffixes of numbers that are shown in the row of another number."""


def run_section(run: Scores) -> Markup:
    """One run: its numbers in groups, what was left out, its cost, and what it was made from."""
    state = "complete" if run.is_complete else "incomplete: run the same command to resume"
    parts = [
        element("h2", f"{name_of(run)}, mode {run.manifest.label}"),
        element(
            "p", f"{run.answered} of {run.expected} answered; {state}.", css="faint" if run.is_complete else "warn"
        ),
    ]
    for judge in run.judges:
        parts.append(_judge(judge))
    attempts = (("answer found in", run.found), ("episode ended by", run.endings), ("attempt failed", run.failures))
    counts = [table((heading, "count"), list(found.items())) for heading, found in attempts if found]
    parts += [_agreement(run), element("div", *counts, css="columns"), _costs(run), _manifest(run)]
    return Markup("".join(parts))


def _judge(judge: JudgeScores) -> Markup:
    groups: dict[str, list[tuple[str, float | None]]] = {}
    for name, value in judge.metrics.items():
        if not name.endswith(_QUIET):
            group, colon, rest = name.partition(":")
            groups.setdefault(group if colon else "", []).append((rest if colon else name, value))
    tables = [_group(judge, group, entries=entries) for group, entries in groups.items()]
    left_out = [
        *(("excluded by the mode", reason, count) for reason, count in judge.excluded.items()),
        *(("ungraded: outage", reason, count) for reason, count in judge.ungraded.items()),
        *((("unreadable", unreadable_text(judge), judge.unreadable),) if judge.unreadable else ()),
    ]
    parts: list[Markup] = [element("h3", f"Judge: {judge.judge}"), element("div", *tables, css="columns")]
    if left_out:
        parts.append(table(("left out", "reason", "count"), left_out))
    if judge.texts:
        parts += [element("h3", "As the official scorer prints it"), table(("name", "text"), list(judge.texts.items()))]
    return Markup("".join(parts))


def _group(judge: JudgeScores, group: str, *, entries: Sequence[tuple[str, float | None]]) -> Markup:
    rows = []
    for name, value in entries:
        full = f"{group}:{name}" if group else name
        companions = {quiet: judge.metrics.get(f"{full}{quiet}") for quiet in _QUIET}
        notes = [f"n {companions[':n_samples']:.0f}"] if companions[":n_samples"] else []
        deviation = companions[":bootstrap_std"] or companions[":std"]
        notes += [f"sd {percent(deviation)}"] if deviation else []
        rows.append((name, _number(group, name, value=value), ", ".join(notes)))
    return table((group or "metric", "score", ""), rows)


def _number(group: str, name: str, *, value: float | None) -> str:
    """FACT counts citations per task; everything else is a share."""
    is_count = group == "fact" and name != "citation_accuracy"
    return f"{value:.2f}" if is_count and value is not None else percent(value)


def _agreement(run: Scores) -> Markup:
    rows = [
        (pair.first, pair.second, f"{100 * pair.share:.1f} %", f"{pair.kappa:.2f}", pair.n) for pair in run.agreements
    ]
    found = ""
    if rows:
        found += element("h3", "Agreement of judges") + table(("first", "second", "same", "kappa", "verdicts"), rows)
    if run.variance is not None:
        split = (f"{run.variance['between']:.4f}", f"{run.variance['within']:.4f}")
        found += element("h3", f"Variance over {run.manifest.epochs} epochs")
        found += table(("between examples", "within an example"), [split])
    return Markup(found)


def _costs(run: Scores) -> Markup:
    rows = [
        (
            cost.stage,
            cost.model or "-",
            f"{cost.usage.calls:,}",
            f"{cost.usage.input_tokens:,}",
            f"{cost.usage.output_tokens:,}",
            f"${cost.dollars:.4f}" if cost.is_priced else NO_PRICE,
        )
        for cost in run.costs
    ]
    headings = ("stage", "model", "calls", "tokens read", "tokens written", "list price")
    return Markup(element("h3", "Cost") + table(headings, rows)) if rows else Markup("")


def _manifest(run: Scores) -> Markup:
    manifest = run.manifest
    rules, inputs, agent = manifest.rules, manifest.inputs, manifest.agent
    rows = [
        ("data", element("code", f"{inputs.path} ({inputs.rows} rows, sha256 {inputs.sha256})")),
        ("examples", f"{len(inputs.ids)}: {inputs.subset}; {len(inputs.left_out)} dropped because training saw them"),
        ("mode's judge", f"{lifetime(rules.judge) or 'none'}, temperature {rules.temperature:g}, {rules.tries} tries"),
        ("judges of this run", f"{', '.join(manifest.judges) or 'none'}; prompts {_prompts(manifest)}"),
        (
            "arithmetic",
            f"batches of {rules.batch_size}; mean {'clipped to 0..1' if rules.clips_mean else 'not clipped'}",
        ),
        ("answer text", f"{rules.extraction}, citations {rules.citations}"),
        (
            "agent",
            f"{agent.policy}, {agent.style}, search {agent.search}{_version(agent.search_sha256)}, "
            f"reuse {agent.reuse}{_version(agent.bank_sha256)}, {agent.attempts} attempts"
            + (f"; sampled with {agent.sampling}" if agent.sampling is not None else ""),
        ),
        ("made", f"{manifest.created}, rubricem {manifest.code}, seed {manifest.seed}"),
    ]
    return Markup(element("h3", "What it was made from") + table(("", ""), rows))


def _prompts(manifest: EvaluationManifest) -> str:
    if not manifest.prompt_hash:
        return "none"
    return f"{'our own' if manifest.has_own_prompts else f'official, of {manifest.prompts}'} ({manifest.prompt_hash})"


def _version(sha256: str) -> str:
    return f" (sha256 {sha256[:12]})" if sha256 else ""


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
            interval_text(judge),
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
    """When a judge was or will be shut down, in words; empty where nothing is announced."""
    day, successor = SHUT_DOWN.get(judge, ("", ""))
    return f"{judge}, shut down on {day} (successor {successor})" if day else judge


def _left_out(run: Scores, judge: JudgeScores) -> str:
    counts = {
        "excluded": sum(judge.excluded.values()),
        "ungraded": sum(judge.ungraded.values()),
        "unreadable": judge.unreadable,
        "unanswered": run.expected - run.answered,
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "none"


def _tables(summary: Summary) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    """Title, headings and rows of what follows the overview, in the terminal and on the page."""
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


def print_summary(summary: Summary, console: Console) -> None:
    """Overview, details of each run, averages, comparisons, and the published rows."""
    _print_table(console, "Scores x100", headings=_OVERVIEW, rows=_overview(summary))
    for note in _notes(summary):
        console.print(RichText(note, style="dim"))
    for run in summary.runs:
        _print_details(run, console)
    for title, headings, rows in _tables(summary):
        if rows:
            _print_table(console, title, headings=headings, rows=rows)
    for sentence in summary.not_compared:
        console.print(RichText(sentence))


def _print_table(console: Console, title: str, *, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=RichText(title))
    for heading, cells in zip(headings, zip(*rows, strict=True), strict=True):
        has_numbers = all(re.fullmatch(r"[-+$]?[\d.]*", cell) for cell in cells)
        table.add_column(heading, justify="right" if has_numbers else "left")
    for row in rows:
        table.add_row(*map(RichText, row), style="bold" if row[0].startswith(OWN) else None)
    console.print(table)


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
        console.print(RichText(f"  {unreadable_text(judge)}"))
    for pair in run.agreements:
        kappa = f"{100 * pair.share:.1f} % the same, kappa {pair.kappa:.2f}, n {pair.n}"
        console.print(RichText(f"  {pair.first} and {pair.second}: {kappa}"))
    if run.variance is not None:
        split = f"between examples {run.variance['between']:.4f}, within {run.variance['within']:.4f}"
        console.print(RichText(f"  variance over {run.manifest.epochs} epochs: {split}"))


TITLE = "RubricEM evaluation"


def render_page(summary: Summary) -> str:
    """The whole page."""
    style = resources.files("rubricem_agent.evals").joinpath("report.css").read_text(encoding="utf-8")
    body = [
        element("h1", TITLE),
        element("p", "Scores times 100. Every number is shown with its mode; modes are never mixed.", css="faint"),
        _overview_html(summary),
    ]
    for title, headings, rows in _tables(summary):
        cells = [[element("span", cell, css="own") for cell in row] if row[0].startswith(OWN) else row for row in rows]
        body += [element("h3", title), table(headings, cells, css="notes")] if rows else []
    body += [element("p", sentence, css="warn") for sentence in summary.not_compared]
    body += [run_section(run) for run in summary.runs]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{show(TITLE)}</title><style>{style}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'


def _overview_html(summary: Summary) -> Markup:
    """The overview with each interval drawn beside it."""
    judges = [judge for run in summary.runs for judge in run.judges]
    rows = [
        (*row[:4], element("span", row[4], css="big"), row[5], interval_bar(judge), *row[6:])
        for row, judge in zip(_overview(summary), judges, strict=True)
    ]
    overview = table((*_OVERVIEW[:6], "", *_OVERVIEW[6:]), rows)
    return Markup(overview + "".join(element("p", note, css="warn") for note in _notes(summary)))
