"""A summary as one page of HTML that needs nothing else: no script, no font, no address."""

from importlib import resources

from rubricem_agent.evals.report.markup import Markup, element, interval_bar, show, table
from rubricem_agent.evals.report.published import PublishedTable
from rubricem_agent.evals.report.run_section import run_section
from rubricem_agent.evals.report.summary import Summary, interval_text, name_of, own_rows, percent
from rubricem_agent.evals.report.terminal import SUBSTITUTE_NOTE
from rubricem_agent.evals.run.money import cost_text

TITLE = "RubricEM evaluation"


def render_page(summary: Summary) -> str:
    """The whole page."""
    style = resources.files("rubricem_agent.evals.report").joinpath("page.css").read_text(encoding="utf-8")
    body = [
        element("h1", TITLE),
        element("p", "Scores times 100. The mode stands beside every number; modes are never mixed.", css="faint"),
        _overview(summary),
        _averages(summary),
        _comparisons(summary),
        *(_published(published, summary) for published in summary.published),
        *(run_section(run) for run in summary.runs),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{show(TITLE)}</title><style>{style}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'


def _overview(summary: Summary) -> Markup:
    headings = ("run", "mode", "judge", "metric", "score", "95 % interval", "", "worst case", "graded", "cost")
    rows = []
    for run in summary.runs:
        for judge in run.judges:
            spread = judge.wilson or judge.spread
            rows.append(
                (
                    name_of(run),
                    run.manifest.label,
                    judge.judge,
                    judge.headline,
                    element("span", percent(judge.score), css="big"),
                    interval_text(judge),
                    interval_bar(judge.score, spread.low, high=spread.high) if spread else "",
                    percent(judge.worst),
                    f"{judge.graded} of {run.expected}",
                    cost_text(run.costs),
                )
            )
    star = any(run.manifest.is_substituted for run in summary.runs)
    return Markup(table(headings, rows) + (element("p", SUBSTITUTE_NOTE, css="warn") if star else ""))


def _averages(summary: Summary) -> Markup:
    rows = [
        (
            average.what,
            average.label,
            average.agent,
            percent(average.value),
            f"missing: {', '.join(average.missing)}" if average.missing else "",
        )
        for average in summary.averages
    ]
    return Markup(element("h3", "The paper's two averages") + table(("mean over", "mode", "policy", "score", ""), rows))


def _comparisons(summary: Summary) -> Markup:
    if not summary.comparisons:
        return Markup("")
    rows = [
        (
            gap.first,
            gap.second,
            f"{100 * gap.difference:+.1f}",
            f"{percent(gap.low)} to {percent(gap.high)}",
            f"{gap.p_value:.3f}",
            gap.n,
        )
        for gap in summary.comparisons
    ]
    headings = ("first", "second", "first minus second", "95 % interval", "p", "shared examples")
    return Markup(element("h3", "Paired bootstrap") + table(headings, rows))


def _published(published: PublishedTable, summary: Summary) -> Markup:
    rows: list[tuple[object, ...]] = [
        (row.system, *("-" if v is None else f"{v:.1f}" for v in row.values), "; ".join(row.flags))
        for row in published.rows
    ]
    for own in own_rows(summary, published.columns):
        cells = [percent(own.scores[column]) if column in own.scores else "" for column in published.columns]
        rows.append(tuple(element("span", cell, css="own") for cell in (own.system, *cells, own.note)))
    heading = element("h2", "Published rows, percent") + element("p", published.source, css="faint")
    return Markup(heading + table(("system", *published.columns, "not the same as ours"), rows, css="notes"))
