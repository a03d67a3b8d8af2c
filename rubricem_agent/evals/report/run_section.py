"""One run on the page: its numbers in groups, what was left out, what it cost, what it was made from."""

from collections.abc import Mapping, Sequence

from rubricem_agent.evals.report.markup import Markup, element, table
from rubricem_agent.evals.report.summary import name_of, percent
from rubricem_agent.evals.run.money import NO_PRICE
from rubricem_agent.evals.scores import JudgeScores, Scores

_QUIET = (":n_samples", ":bootstrap_std", ":std")
"""Companions of other numbers: shown in their row, not in rows of their own."""


def run_section(run: Scores) -> Markup:
    """Everything that is known of a run."""
    state = "complete" if run.is_complete else "incomplete: run the same command to go on"
    parts = [
        element("h2", f"{name_of(run)}, mode {run.manifest.label}"),
        element(
            "p", f"{run.answered} of {run.expected} answered; {state}.", css="faint" if run.is_complete else "warn"
        ),
    ]
    for judge in run.judges:
        parts.append(_judge(judge))
    parts += [_agreement(run), _attempts(run), _costs(run), _manifest(run)]
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
        *((("judge", "replies that could not be read", judge.unreadable),) if judge.unreadable else ()),
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
        split = (f"{run.variance.between:.4f}", f"{run.variance.within:.4f}")
        found += element("h3", f"Variance over {run.manifest.epochs} epochs")
        found += table(("between examples", "within an example"), [split])
    return Markup(found)


def _attempts(run: Scores) -> Markup:
    return element(
        "div",
        _counts("answer found in", run.found),
        _counts("episode ended by", run.endings),
        _counts("attempt failed", run.failures),
        css="columns",
    )


def _counts(heading: str, counts: Mapping[str, int]) -> Markup:
    return table((heading, "count"), list(counts.items())) if counts else Markup("")


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
        ("mode's judge", f"{rules.judge or 'none'}, temperature {rules.temperature:g}, {rules.tries} tries"),
        ("judges of this run", f"{', '.join(manifest.judges) or 'none'}; prompts {manifest.prompt_hash or '-'}"),
        (
            "arithmetic",
            f"batches of {rules.batch_size}; mean {'clipped to 0..1' if rules.clips_mean else 'not clipped'}",
        ),
        ("answer text", f"{rules.extraction.value}, citations {rules.citations.value}"),
        (
            "agent",
            f"{agent.policy}, {agent.style}, search {agent.search}{_version(agent.search_sha256)}, "
            f"reuse {agent.reuse}{_version(agent.bank_sha256)}, {agent.attempts} attempts",
        ),
        ("made", f"{manifest.created}, rubricem {manifest.code}, seed {manifest.seed}"),
    ]
    return Markup(element("h3", "What it was made from") + table(("", ""), rows))


def _version(sha256: str) -> str:
    return f" (sha256 {sha256[:12]})" if sha256 else ""
