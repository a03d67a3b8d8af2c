"""Our evaluations as rows of a published table."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from rubricem_env.llm.prices import SHUT_DOWN
from rubricem_records.evaluations.names import agent_name, title_of
from rubricem_records.evaluations.published_scores import PublishedScores
from rubricem_records.evaluations.scores import NO_JUDGE, Scores

OWN = "this run: "
"""Begins the name of our own row among published ones."""


def group_runs(runs: Iterable[Scores], judge_of: Callable[[Scores], str]) -> dict[tuple[str, ...], list[Scores]]:
    """The runs of each agent, mode and judge, in this order; a second run of a benchmark is in a group of its own."""
    groups: dict[tuple[str, ...], list[Scores]] = {}
    seen: Counter[tuple[str, ...]] = Counter()
    for run in runs:
        key = (agent_name(run), run.manifest.label, judge_of(run))
        number = seen[*key, run.manifest.benchmark]
        seen[*key, run.manifest.benchmark] += 1
        groups.setdefault((*key, str(number)), []).append(run)
    return groups


def own_rows(all_runs: Sequence[Scores], columns: Sequence[str]) -> list[PublishedScores]:
    """Our runs as rows of a published table: one for each agent, mode and judge with a number for one of the columns.

    A second run of a benchmark has a row of its own.
    """
    shown = [run for run in all_runs if title_of(run) in columns]
    rows = []
    for (agent, label, judge, _), runs in group_runs(shown, lambda run: run.headline.judge).items():
        judged: tuple[str, ...] = () if judge == NO_JUDGE else (f"judged by {judge}",)
        published = dict.fromkeys(lifetime(run.manifest.rules.judge) for run in runs if run.manifest.is_substituted)
        judged += tuple(dict.fromkeys(run.manifest.warning for run in runs if run.manifest.warning))
        judged += (f"mixed judges: the published rows are of {'; '.join(published)}",) if published else ()
        scores = {title_of(run): run.headline.score for run in runs}
        measured = [scores.get(column) for column in columns[:-1]]
        if None not in measured:
            # The last column of both tables is the mean of the others.
            scores[columns[-1]] = sum(value for value in measured if value is not None) / len(measured)
        sizes = "; ".join(f"{title_of(run)} n {run.headline.graded} ({run.manifest.inputs.subset})" for run in runs)
        values = tuple(None if (score := scores.get(column)) is None else 100 * score for column in columns)
        rows.append(PublishedScores(system=f"{OWN}{agent}", values=values, flags=(f"mode {label}; {sizes}", *judged)))
    return rows


def joined_row(runs: Sequence[Scores], columns: Sequence[str]) -> PublishedScores:
    """The runs of one table as one row, whatever their judges; what each was made with stands in the flags."""
    scores = {title_of(run): run.headline.score for run in runs}
    values = [scores.get(column) for column in columns[:-1]]
    measured = [value for value in values if value is not None]
    # The last column is the mean of the others.
    values.append(sum(measured) / len(measured) if len(measured) == len(values) else None)
    flags = tuple(
        f"{title_of(run)}: {run.manifest.label}, judge {run.headline.judge}, n {run.headline.graded} of {run.expected}"
        for run in runs
    )
    agents = dict.fromkeys(map(agent_name, runs))
    percents = tuple(None if value is None else 100 * value for value in values)
    return PublishedScores(system=f"{OWN}{', '.join(agents)}", values=percents, flags=flags)


def lifetime(judge: str) -> str:
    """A judge with the day until which it is served; the judge alone where no day is announced."""
    day, successor = SHUT_DOWN.get(judge, ("", ""))
    return f"{judge}, served until {day} (successor {successor})" if day else judge
