"""Several runs together: both averages of the paper, comparisons of pairs, and the published rows beside them."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import PurePath
from typing import NamedTuple

import numpy as np

from rubricem_agent.evals.report.published import PublishedTable, published_tables
from rubricem_agent.evals.scores import JudgeScores, Scores
from rubricem_agent.evals.statistics import paired_bootstrap
from rubricem_agent.evals.suite import SUITE, find_entry
from rubricem_env.domain.base import Frozen, Text

LONG, SHORT = "four long-form benchmarks", "four short-form benchmarks"


class Average(Frozen):
    """The mean over the benchmarks of one of the paper's tables, of runs in one mode."""

    what: Text
    label: Text
    agent: Text
    value: float | None
    """None as long as one of them is missing: an average over others would be no average of the paper."""
    missing: tuple[Text, ...]


class Comparison(Frozen):
    """First minus second on the examples that both runs scored."""

    first: Text
    second: Text
    difference: float
    low: float
    high: float
    p_value: float
    n: int


class Summary(Frozen):
    """All that a report shows."""

    runs: tuple[Scores, ...]
    averages: tuple[Average, ...]
    comparisons: tuple[Comparison, ...]
    published: tuple[PublishedTable, ...]


def summarize(runs: Sequence[Scores], *, seed: int = 0) -> Summary:
    """The runs in the order given."""
    return Summary(
        runs=tuple(runs),
        averages=_averages(runs),
        comparisons=tuple(_comparisons(runs, np.random.default_rng(seed))),
        published=published_tables([find_entry(run.manifest.benchmark).title for run in runs]),
    )


def name_of(run: Scores) -> str:
    """How a run is named in a report."""
    return f"{find_entry(run.manifest.benchmark).title}, {agent_name(run)}"


class OwnRow(NamedTuple):
    """The runs of one agent in one mode as a row of a published table."""

    system: str
    scores: Mapping[str, float | None]
    """By the title of the benchmark."""
    note: str


def own_rows(summary: Summary, columns: Sequence[str]) -> list[OwnRow]:
    """One row for each agent and mode that has a number for one of the columns."""
    groups: dict[tuple[str, str], list[Scores]] = {}
    for run in summary.runs:
        if find_entry(run.manifest.benchmark).title in columns:
            groups.setdefault((agent_name(run), run.manifest.label), []).append(run)
    rows = []
    for (agent, label), runs in groups.items():
        scores = {find_entry(run.manifest.benchmark).title: run.headline.score for run in reversed(runs)}
        measured = [scores.get(column) for column in columns[:-1]]
        if None not in measured:
            # The last column of both tables is the mean of the others.
            scores[columns[-1]] = sum(value for value in measured if value is not None) / len(measured)
        sizes = "; ".join(
            f"{find_entry(run.manifest.benchmark).title} n {run.headline.graded} ({run.manifest.inputs.subset})"
            for run in runs
        )
        rows.append(OwnRow(f"this run: {agent}", scores, f"mode {label}; {sizes}"))
    return rows


def agent_name(run: Scores) -> str:
    """Policy, style and memory in short; a file of answers by its name alone."""
    agent = run.manifest.agent
    kind, colon, rest = agent.policy.partition(":")
    policy = f"{kind}:{PurePath(rest).name}" if kind in ("file", "local") and colon else agent.policy
    habits = [agent.style, f"reuse {agent.reuse}" if agent.reuse != "none" else ""]
    habits.append(f"{agent.attempts} attempts" if agent.attempts > 1 else "")
    return f"{policy} ({', '.join(filter(None, habits))})"


def percent(value: float | None) -> str:
    """Times 100, one decimal; a dash where there is no number."""
    return "-" if value is None else f"{100 * value:.1f}"


def interval_text(judge: JudgeScores) -> str:
    """The interval that fits the benchmark: Wilson for rates, bootstrap for the others."""
    spread = judge.wilson or judge.spread
    return "-" if spread is None else f"{percent(spread.low)} to {percent(spread.high)}"


def _averages(runs: Sequence[Scores]) -> tuple[Average, ...]:
    groups: dict[tuple[str, str], dict[str, float | None]] = {}
    for run in runs:
        key = (run.manifest.label, agent_name(run))
        groups.setdefault(key, {}).setdefault(run.manifest.benchmark, run.headline.score)
    averages = []
    for (label, agent), scores in groups.items():
        for what, is_long in ((LONG, True), (SHORT, False)):
            wanted = [entry.name for entry in SUITE.values() if entry.is_long is is_long and entry.name != "almanac"]
            values = [value for name in wanted if (value := scores.get(name)) is not None]
            missing = tuple(name for name in wanted if scores.get(name) is None)
            if not values:
                continue
            value = None if missing else sum(values) / len(values)
            averages.append(Average(what=what, label=label, agent=agent, value=value, missing=missing))
    return tuple(averages)


def _comparisons(runs: Sequence[Scores], rng: np.random.Generator) -> list[Comparison]:
    """Every two runs of one benchmark in one mode that share examples."""
    found = []
    for first, second in combinations(runs, 2):
        ours, theirs = first.headline.per_example, second.headline.per_example
        is_comparable = first.manifest.benchmark == second.manifest.benchmark
        if is_comparable and first.manifest.label == second.manifest.label and ours.keys() & theirs.keys():
            gap = paired_bootstrap(ours, theirs, rng=rng)
            found.append(
                Comparison(
                    first=name_of(first),
                    second=name_of(second),
                    difference=gap.mean,
                    low=gap.low,
                    high=gap.high,
                    p_value=gap.p_value,
                    n=gap.n,
                )
            )
    return found
