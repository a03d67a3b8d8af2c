"""The ablation over seeds: each recipe's results against answer-only GRPO, its table, and its chart as an SVG file.

The charts need no script and no library. Text is escaped, and coordinates have one decimal, so that files stay small.
A comparison of credit methods has its own page: the protocol, ends, areas and equal cost, each against SS-GRPO.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from rubricem_agent.evals.statistics import bootstrap_mean, paired_bootstrap
from rubricem_agent.learn import metrics
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.inputs import package_text, read_text, refuse_other_than_file, validating
from rubricem_viewer.api import Curve

ABLATION_FILE = "ablation.json"
Logs = Mapping[str, Mapping[int, metrics.RunLog]]
"""By recipe, then by seed."""


class Spread(Frozen):
    """A mean over seeds with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


class CurvePoint(Frozen):
    step: int
    answer: Spread


class RecipeResult(Frozen):
    """A recipe over its seeds, by truth on held-out questions, at the last step."""

    name: str
    title: str
    seeds: tuple[int, ...]
    answer: Spread
    all_stages: Spread
    valid: Spread
    against_baseline: Spread
    """Answers less answer-only GRPO's, seed by seed; 0 for answer-only GRPO itself."""
    steps_to_baseline: int | None
    """The first evaluated step at which the mean over seeds reaches what answer-only GRPO reaches at the end."""
    seconds: float
    """Of the steps of one run, on average, while others ran beside it."""
    curve: tuple[CurvePoint, ...]


class Ablation(Frozen):
    """All recipes under one budget."""

    steps: int
    command: str
    results: Annotated[tuple[RecipeResult, ...], Field(min_length=1)]


def summarise(logs: Logs, *, steps: int, command: str) -> Ablation:
    """The ablation from the logs of its runs.

    Raises:
        UsageError: a run lacks an evaluation after `steps`, or the recipes have no seed in common.
    """
    for name, runs in logs.items():
        for seed, log in runs.items():
            if not any(evaluation.step == steps for evaluation in log.evaluations):
                raise UsageError(
                    f"the run {name}, seed {seed} was not evaluated at step {steps}; run the ablation again."
                )
    if metrics.BASELINE.name not in logs:
        raise UsageError(f"no run of {metrics.BASELINE.title} has ended, and the others are compared with it.")
    goal = float(
        np.mean([evaluation_at(log, steps).held_out["answer"] for log in logs[metrics.BASELINE.name].values()])
    )
    results = [_result(recipe, logs, steps=steps, goal=goal) for recipe in metrics.KNOWN if recipe.name in logs]
    return Ablation(steps=steps, command=command, results=tuple(results))


def evaluation_at(log: metrics.RunLog, step: int) -> metrics.EvaluationLine:
    return next(evaluation for evaluation in log.evaluations if evaluation.step == step)


def _result(recipe: metrics.Recipe, logs: Logs, *, steps: int, goal: float) -> RecipeResult:
    runs = logs[recipe.name]
    last = [evaluation_at(log, steps) for log in runs.values()]
    shared = metrics.answers_by_step(list(runs.values()))
    curve = tuple(CurvePoint(step=step, answer=spread(values)) for step, values in shared.items() if step <= steps)
    own, baseline = (
        {str(seed): evaluation_at(log, steps).held_out["answer"] for seed, log in of.items()}
        for of in (runs, logs[metrics.BASELINE.name])
    )
    gap = paired_bootstrap(own, baseline, rng=np.random.default_rng(0))
    return RecipeResult(
        name=recipe.name,
        title=recipe.title,
        seeds=tuple(runs),
        answer=spread([evaluation.held_out["answer"] for evaluation in last]),
        all_stages=spread([float(np.mean(list(evaluation.held_out.values()))) for evaluation in last]),
        valid=spread([evaluation.valid for evaluation in last]),
        against_baseline=Spread(mean=gap.difference, low=gap.low, high=gap.high),
        steps_to_baseline=next((point.step for point in curve if point.step and point.answer.mean >= goal), None),
        seconds=float(np.mean([sum(sum(line.seconds.values()) for line in log.steps) for log in runs.values()])),
        curve=curve,
    )


def spread(values: Sequence[float]) -> Spread:
    """Mean and interval; the generator is fixed, so that the same runs give the same interval."""
    found = bootstrap_mean(values, rng=np.random.default_rng(0))
    return Spread(mean=float(np.mean(values)), low=found.low, high=found.high)


WIDTH, HEIGHT = 460, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 10, 10, 36
_TICKS = 5
_NUM_COLOURS = 5
PlotArea = tuple[float, float, float, float]
"""The numbers at the edges of the drawing area: lowest and highest x, then y."""


def _position(area: PlotArea, x: float, y: float) -> str:
    x_low, x_high, y_low, y_high = area
    across = _LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - _LEFT - _RIGHT)
    down = HEIGHT - _BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - _TOP - _BOTTOM)
    return f"{across:.1f},{down:.1f}"


def draw_svg(title: str, curves: Sequence[Curve]) -> str:
    """The chart over the steps as a file of its own, with title, legend and colours inside.

    Raises:
        UsageError: there is nothing to draw.
    """
    drawn = [curve for curve in curves if curve.x]
    if not drawn:
        raise UsageError(f"there is no point to draw for the figure {title!r}; evaluate the runs at least once.")
    x_ticks = nice_ticks([x for curve in drawn for x in curve.x])
    y_ticks = nice_ticks([y for curve in drawn for y in (*curve.y, *curve.low, *curve.high)])
    area = x_ticks[0], x_ticks[-1], y_ticks[0], y_ticks[-1]
    marks = "".join(_draw_curve(curve, area, index % _NUM_COLOURS) for index, curve in enumerate(drawn))
    keys = []
    for index, curve in enumerate(drawn):
        y = HEIGHT + 40 + 18 * index
        line = f'<line class="curve c{index % _NUM_COLOURS}" x1="48" x2="68" y1="{y - 4}" y2="{y - 4}"/>'
        keys.append(f'{line}<text class="tick" x="76" y="{y}">{escape(curve.name)}</text>')
    height = HEIGHT + 30 + 18 * len(keys)
    head = f'<text class="title" x="8" y="18">{escape(title)}</text>'
    inner = f'<svg y="26" width="{WIDTH}" height="{HEIGHT}">{_draw_axes(area, x_ticks, y_ticks)}{marks}</svg>'
    outer = f'viewBox="0 0 {WIDTH} {height}" width="{2 * WIDTH}" height="{2 * height}"'
    named = f'role="img" aria-label="{escape(title, quote=True)}"'
    # A chart in a file of its own has no page to take colours from.
    style = f"<style>{package_text('rubricem_viewer', 'chart.css')}</style>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {outer} {named}>{style}{head}{inner}{"".join(keys)}</svg>\n'


def nice_ticks(values: Sequence[float]) -> list[float]:
    """About `_TICKS` round numbers, from below the least value to above the greatest; one value gets room on both sides."""
    low, high = min(values), max(values)
    room = (abs(low) * 0.1 or 0.5) if low == high else 0.0
    raw = (high - low + 2 * room) / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.floor((low - room) / step + 1e-9), math.ceil((high + room) / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _draw_axes(frame: PlotArea, x_ticks: Sequence[float], y_ticks: Sequence[float]) -> str:
    lines = []
    for tick in y_ticks:
        x, y = _position(frame, x_ticks[0], tick).split(",")
        lines.append(f'<line class="grid" x1="{x}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        lines.append(f'<text class="tick" x="{_LEFT - 6}" y="{float(y) + 3:.1f}" text-anchor="end">{tick:.4g}</text>')
    for tick in x_ticks:
        x = _position(frame, tick, y_ticks[0]).split(",")[0]
        lines.append(f'<text class="tick" x="{x}" y="{HEIGHT - 20}" text-anchor="middle">{tick:.4g}</text>')
    lines.append(f'<text class="tick" x="{WIDTH - _RIGHT}" y="{HEIGHT - 5}" text-anchor="end">step</text>')
    return "".join(lines)


def _draw_curve(curve: Curve, frame: PlotArea, colour: int) -> str:
    band = ""
    if len(curve.low) > 1:
        edge = [_position(frame, x, high) for x, high in zip(curve.x, curve.high, strict=True)]
        edge += [_position(frame, x, low) for x, low in zip(curve.x[::-1], curve.low[::-1], strict=True)]
        band = f'<polygon class="band c{colour}" points="{" ".join(edge)}"/>'
    positions = [_position(frame, x, y) for x, y in zip(curve.x, curve.y, strict=True)]
    dashes = ' stroke-dasharray="5 4"' if curve.dashed else ""
    line = f'<polyline class="curve c{colour}"{dashes} points="{" ".join(positions)}"/>' if len(positions) > 1 else ""
    dots = positions if len(positions) <= 40 and not curve.dashed else []
    marks = (f'<circle class="dot c{colour}" cx="{x}" cy="{y}" r="2.2"/>' for x, y in (at.split(",") for at in dots))
    return band + line + "".join(marks)


FIGURE_TITLE = "Held-out answers by truth, mean over seeds with 95 % interval"


def load_ablation(folder: Path) -> Ablation:
    """What `rubricem ablate` left in its folder.

    Raises:
        FileFormatError: it is not there, or not whole.
    """
    path = folder / ABLATION_FILE
    refuse_other_than_file(path, "ablation")
    with validating(f"{path} is no ablation", "Run rubricem ablate again."):
        return Ablation.model_validate_json(read_text(path, "the result of an ablation that has ended"))


def result_cells(result: RecipeResult) -> dict[str, str]:
    """A row of the table for a terminal, by column; the page has more."""
    return {
        "recipe": result.title,
        "answers": _cell(result.answer),
        "against answer-only": "-" if result.name == metrics.BASELINE.name else _cell(result.against_baseline, "+"),
        "steps to answer-only's end": str(result.steps_to_baseline or "not reached"),
    }


def render_figure(ablation: Ablation) -> str:
    """The figure as an SVG file of its own."""
    curves = [
        Curve(
            name=result.title,
            x=tuple(float(at.step) for at in result.curve),
            y=tuple(at.answer.mean for at in result.curve),
            low=tuple(at.answer.low for at in result.curve),
            high=tuple(at.answer.high for at in result.curve),
        )
        for result in ablation.results
    ]
    return draw_svg(FIGURE_TITLE, curves)


ANSWER_READERS = ("terminal", "dr_grpo", "igpo")
"""Credit whose judge reads the answer alone."""


def step_cost(line: metrics.StepLine, credit: str) -> float:
    """Tokens sampled and tokens judged, as the page counts them."""
    if line.habits is None:
        return 0.0
    written, reflected = line.habits.policy_tokens, line.reflection.tokens if line.reflection else 0
    judged = float(written)
    if credit in ANSWER_READERS and line.task is not None and line.task.tokens:
        answer = line.task.stages.get("answer")
        judged *= (answer.tokens if answer else 0) / line.task.tokens
    again = written if credit == "igpo" else 0
    return written + judged + again + 2 * reflected


def area(log: metrics.RunLog, steps: int) -> float:
    """The mean held-out answer over steps 0 to `steps`, on straight lines between evaluations."""
    places, values = _held_out_curve(log, steps)
    return float(np.trapezoid(values, places) / (places[-1] - places[0])) if len(places) > 1 else values[-1]


def at_cost(log: metrics.RunLog, credit: str, steps: int, budget: float) -> float:
    """The held-out answer where the run had spent `budget`; its last one where it never does."""
    spent = np.cumsum([0.0, *(step_cost(line, credit) for line in log.steps if line.step <= steps)])
    places, values = _held_out_curve(log, steps)
    return float(np.interp(budget, np.interp(places, np.arange(len(spent)), spent), values))


def _held_out_curve(log: metrics.RunLog, steps: int) -> tuple[list[int], list[float]]:
    found = {line.step: line.held_out["answer"] for line in log.evaluations if line.step <= steps}
    return list(found), list(found.values())


def sign_test(differences: Sequence[float]) -> float:
    """The exact two-sided p of a mean difference, over all signs of the pairs."""
    gaps = np.array(differences)
    signs = np.array(list(itertools.product((1, -1), repeat=len(gaps))))
    return float(np.mean(np.abs(signs @ gaps) >= abs(gaps.sum()) - 1e-12))


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """P-values corrected for their number by Holm's steps."""
    corrected, least = dict[str, float](), 0.0
    for place, (name, value) in enumerate(sorted(values.items(), key=lambda item: item[1])):
        least = max(least, min(1.0, value * (len(values) - place)))
        corrected[name] = least
    return corrected


def render_arena(logs: Logs, recipes: Sequence[metrics.Recipe], *, steps: int, command: str) -> str:
    """The page as Markdown; contrasts are with SS-GRPO over the seeds that both have."""
    known = [recipe for recipe in recipes if logs.get(recipe.name)]
    total = {
        one.name: [sum(step_cost(line, one.credit) for line in log.steps) for log in logs[one.name].values()]
        for one in known
    }
    budget = min(float(np.mean(costs)) for costs in total.values())
    scores = {
        one.name: {
            seed: (
                evaluation_at(log, steps).held_out["answer"],
                area(log, steps),
                at_cost(log, one.credit, steps, budget),
            )
            for seed, log in logs[one.name].items()
        }
        for one in known
    }
    standard = scores[metrics.SS_GRPO.name]
    gaps = {
        name: [own[seed][1] - standard[seed][1] for seed in sorted(own.keys() & standard.keys())]
        for name, own in scores.items()
        if name != metrics.SS_GRPO.name
    }
    p = holm({name: sign_test(gap) for name, gap in gaps.items() if gap})
    rows = ["| method | seeds | answers at the end | area | area against SS-GRPO | p | equal cost | thousand tokens |"]
    rows.append("|---|---|---|---|---|---|---|---|")
    for one in known:
        end, whole, equal = (spread(column) for column in zip(*scores[one.name].values(), strict=True))
        gap = gaps.get(one.name)
        against = _cell(spread(gap), "+") if gap else "-"
        chance = f"{p[one.name]:.2f}" if gap else "-"
        cost = f"{np.mean(total[one.name]) / 1000:.0f}"
        cells = [one.title, str(len(scores[one.name])), _cell(end), _cell(whole), against, chance, _cell(equal), cost]
        rows.append(f"| {' | '.join(cells)} |")
    return package_text("rubricem_viewer", "arena.md").format(command=command, steps=steps, table="\n".join(rows))


def _cell(value: Spread, sign: str = "") -> str:
    if value.low == value.high:  # one seed has no interval
        return f"{value.mean:{sign}.3f}"
    return f"{value.mean:{sign}.3f} ({value.low:{sign}.3f} to {value.high:{sign}.3f})"
