"""Writes the charts of the arena from the data beside it, for `make docs-figures`.

A test compares the charts with the data.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from research.line_chart import draw_svg
from rubricem_records.runs.levels import find_levels
from rubricem_records.runs.recipes import KNOWN
from rubricem_viewer.api.figures import Curve

DOCS = Path(__file__).parents[1]
FOLDER = DOCS / "images"
CEILING = find_levels({"policy": "tiny", "held_out": "test"})["ceiling: its faultless twin"]
"""Test questions of the shipped world, answered greedily by the policy without faults."""
TITLES = {recipe.name: recipe.title for recipe in KNOWN}
WINDOW = 3
"""Steps of training that are one point: each step has other questions."""


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DOCS / "data" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def over_seeds(name: str, points: Iterable[tuple[int, float]], *, dashed: bool = False) -> Curve:
    """Mean and range of all values of a step."""
    values = defaultdict(list)
    for step, value in points:
        values[step].append(value)
    steps = sorted(values)
    return Curve(
        name=name,
        x=tuple(float(step) for step in steps),
        y=tuple(mean(values[step]) for step in steps),
        low=tuple(min(values[step]) for step in steps),
        high=tuple(max(values[step]) for step in steps),
        dashed=dashed,
    )


def held_out(run: str, stage: str, *, data: str = "recipes_8e-4") -> list[tuple[int, float]]:
    """A run's stage on the 24 test questions, without the bank."""
    return [(line["step"], line[stage]) for line in read(data) if line["run"] == run and "split" in line]


def below_the_ceiling(title: str, curves: Sequence[Curve]) -> str:
    """Answers to held-out questions, and what the policy without faults answers."""
    steps = curves[0].x
    ceiling = Curve(name=f"ceiling ({CEILING:.2f})", x=steps, y=(CEILING,) * len(steps), dashed=True)
    return draw_svg(title, [*curves, ceiling])


def in_training(run: str, stage: str) -> list[tuple[int, float]]:
    """A run's stage in training, as means of WINDOW steps of a seed, at the step in their middle."""
    values = defaultdict(list)
    for line in read("training_8e-4"):
        if line["run"] == run:
            first = (line["step"] - 1) // WINDOW * WINDOW
            values[line["seed"], first + (WINDOW + 1) // 2].append(line[stage])
    return [(step, mean(each)) for (_, step), each in values.items()]


def recipes() -> str:
    """The four recipes at the rate that was chosen for all."""
    curves = [
        over_seeds(f"{TITLES[run]} without the bank", held_out(run, "answer"))
        for run in ("ss_grpo", "answer_only", "whole", "answer_only_meta")
    ]
    return below_the_ceiling("Answers to held-out questions, by truth, over the steps", curves)


def rare() -> str:
    """Ways to train from a policy that hardly ever does what matters."""
    curves = [
        over_seeds(name, held_out(run, "answer", data="rare"))
        for run, name in (
            ("ss_grpo", "SS-GRPO without lessons"),
            ("whole", "lessons for every attempt, as in the paper"),
            ("whole_half", "lessons for every second attempt"),
            ("whole_distilled", "the same, distilled"),
        )
    ]
    return below_the_ceiling("Answers to held-out questions where a good behaviour is rare", curves)


def lessons() -> str:
    """Why lessons on every attempt leave so little: what they say is met at once by reference."""
    return draw_svg(
        "Plans, by truth, in training and on held-out questions",
        [
            over_seeds("SS-GRPO, held-out questions", held_out("ss_grpo", "plan")),
            over_seeds("SS-GRPO + meta-policy, held-out questions without the bank", held_out("whole", "plan")),
            over_seeds("SS-GRPO, attempts of training", in_training("ss_grpo", "plan"), dashed=True),
            over_seeds(
                "SS-GRPO + meta-policy, attempts of training with lessons", in_training("whole", "plan"), dashed=True
            ),
        ],
    )


CHARTS: Mapping[str, Any] = {"recipes.svg": recipes, "lessons.svg": lessons, "rare.svg": rare}


def main() -> None:
    """Write them all."""
    for name, draw in CHARTS.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
