"""The page that compares credit methods: ends, areas under the curves and equal cost, each against SS-GRPO."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from research.ablation import Logs, evaluation_at, spread, spread_cell
from rubricem_env.domain.inputs import package_text
from rubricem_records.runs.log_lines import StepLine
from rubricem_records.runs.recipes import SS_GRPO, Recipe
from rubricem_records.runs.run_log import RunLog

ANSWER_READERS = ("answer_only", "dr_grpo", "igpo")
"""Credit whose judge reads the answer alone."""


def step_cost(line: StepLine, credit: str) -> float:
    """Tokens sampled and tokens judged, as the page counts them."""
    if line.rollout_stats is None:
        return 0.0
    written, reflected = line.rollout_stats.policy_tokens, line.reflection.tokens if line.reflection else 0
    judged = float(written)
    if credit in ANSWER_READERS and line.task is not None and line.task.tokens:
        answer = line.task.stages.get("answer")
        judged *= (answer.tokens if answer else 0) / line.task.tokens
    again = written if credit == "igpo" else 0
    return written + judged + again + 2 * reflected


def area(log: RunLog, steps: int) -> float:
    """The mean held-out answer over steps 0 to `steps`, on straight lines between evaluations."""
    evaluated, values = _held_out_curve(log, steps)
    return float(np.trapezoid(values, evaluated) / (evaluated[-1] - evaluated[0])) if len(evaluated) > 1 else values[-1]


def at_cost(log: RunLog, credit: str, steps: int, budget: float) -> float:
    """The held-out answer where the run had spent `budget`; its last one where it never does."""
    spent = np.cumsum([0.0, *(step_cost(line, credit) for line in log.steps if line.step <= steps)])
    evaluated, values = _held_out_curve(log, steps)
    return float(np.interp(budget, np.interp(evaluated, np.arange(len(spent)), spent), values))


def _held_out_curve(log: RunLog, steps: int) -> tuple[list[int], list[float]]:
    answers = {line.step: line.held_out["answer"] for line in log.evaluations if line.step <= steps}
    return list(answers), list(answers.values())


def sign_test(differences: Sequence[float]) -> float:
    """The exact two-sided p of a mean difference, over all signs of the pairs."""
    gaps = np.array(differences)
    signs = np.array(list(itertools.product((1, -1), repeat=len(gaps))))
    return float(np.mean(np.abs(signs @ gaps) >= abs(gaps.sum()) - 1e-12))


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """P-values corrected for their number by Holm's steps."""
    corrected, least = dict[str, float](), 0.0
    for rank, (name, value) in enumerate(sorted(values.items(), key=lambda item: item[1])):
        least = max(least, min(1.0, value * (len(values) - rank)))
        corrected[name] = least
    return corrected


def render_arena(logs: Logs, recipes: Sequence[Recipe], *, steps: int, command: str) -> str:
    """The page as Markdown; contrasts are with SS-GRPO over the seeds that both have."""
    known = [recipe for recipe in recipes if logs.get(recipe.name)]
    total = {
        recipe.name: [sum(step_cost(line, recipe.credit) for line in log.steps) for log in logs[recipe.name].values()]
        for recipe in known
    }
    budget = min(float(np.mean(costs)) for costs in total.values())
    scores = {
        recipe.name: {
            seed: (
                evaluation_at(log, steps).held_out["answer"],
                area(log, steps),
                at_cost(log, recipe.credit, steps, budget),
            )
            for seed, log in logs[recipe.name].items()
        }
        for recipe in known
    }
    standard = scores[SS_GRPO.name]
    gaps = {
        name: [own[seed][1] - standard[seed][1] for seed in sorted(own.keys() & standard.keys())]
        for name, own in scores.items()
        if name != SS_GRPO.name
    }
    p = holm({name: sign_test(gap) for name, gap in gaps.items() if gap})
    rows = ["| method | seeds | answers at the end | area | area against SS-GRPO | p | equal cost | thousand tokens |"]
    rows.append("|---|---|---|---|---|---|---|---|")
    for recipe in known:
        end, whole, equal = (spread(column) for column in zip(*scores[recipe.name].values(), strict=True))
        gap = gaps.get(recipe.name)
        against = spread_cell(spread(gap), "+") if gap else "-"
        chance = f"{p[recipe.name]:.2f}" if gap else "-"
        cost = f"{np.mean(total[recipe.name]) / 1000:.0f}"
        cells = [
            recipe.title,
            str(len(scores[recipe.name])),
            spread_cell(end),
            spread_cell(whole),
            against,
            chance,
            spread_cell(equal),
            cost,
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return package_text("research", "arena.md").format(command=command, steps=steps, table="\n".join(rows))
