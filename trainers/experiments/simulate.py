"""Simulates the steps of a config's run: what binds a step, what the judge hides, what deferral saves.

    python -m trainers.experiments.simulate configs/verl_rubricem_8b.yaml [--nodes 2 4] [--json]
    python -m trainers.experiments.simulate configs/verl_rubricem_8b.yaml --times task_seconds=80 swap_seconds=12

Times are estimated from shapes and assumptions; replace them with measured ones by --times.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.table import Table

from rubricem_env.domain.errors import ConfigError

from ..settings import run_command
from ..verl_backend.planning.estimate import estimate_times
from ..verl_backend.planning.plan import NODES
from ..verl_backend.planning.run_shape import (
    Assumptions,
    RunShape,
    find_model_shape,
    read_assumptions,
    read_run_file,
    read_run_shape,
    with_changes,
)
from .step_simulation import Scenario, StepMeans, average, simulate

_COLUMNS = 120


VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "in turn, in lockstep, waits for reflections": {"layout": "sync", "in_lockstep": True, "defers": False},
        "in turn, in lockstep, deferred": {"layout": "sync", "in_lockstep": True},
        "in turn, deferred": {"layout": "sync"},
        "a step ahead, waits for reflections": {"layout": "async", "defers": False},
        "a step ahead, deferred": {"layout": "async"},
        "two steps ahead, deferred": {"layout": "async", "ahead": 2},
        "a step ahead, no meta-policy": {"layout": "async", "has_lessons": False},
        "half sample, half train, deferred": {"layout": "separate"},
    }
)
"""Ways to arrange a step, from the plainest to that of `rubricem_async`, and the layout of the paper's codebase."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate and print. A user error gives exit code 2 and one sentence on stderr."""
    chosen = _parser().parse_args(arguments)

    def run() -> None:
        assumed = read_assumptions(chosen.assume)
        shape = read_run_shape(read_run_file(chosen.config, chosen.changes))
        outcomes = list(
            simulate_variants(
                shape, assumed, nodes=chosen.nodes, steps=chosen.steps, seed=chosen.seed, measured=chosen.times
            )
        )
        if chosen.json:
            sys.stdout.write(json.dumps([_document(*outcome) for outcome in outcomes], allow_nan=False) + "\n")
        else:
            _show(outcomes, Console(width=_COLUMNS, highlight=False, file=sys.stdout))

    return run_command("simulate", run)


def simulate_variants(
    shape: RunShape,
    assumed: Assumptions,
    *,
    nodes: Iterable[int],
    steps: int,
    seed: int = 0,
    measured: Iterable[str] = (),
) -> Iterator[tuple[int, str, StepMeans]]:
    """GPUs, variant and average step, for every variant on every number of nodes.

    The first cycle of the curriculum, which starts from nothing, is simulated and not counted.

    Raises:
        ConfigError: a time is refused, or there are too few steps for a whole cycle after the first.
    """
    window = shape.settings.window
    cycle = 2 * window
    counted = steps // cycle * cycle
    if counted < 2 * cycle:
        raise ConfigError(f"--steps is {steps}; whole cycles are counted, after the first: {2 * cycle} or more.")
    model = find_model_shape(shape.model)
    for number in nodes:
        sized = shape.model_copy(update={"nodes": number})
        for name, changes in VARIANTS.items():
            scenario = Scenario(
                questions=shape.questions,
                group_size=shape.group_size,
                steps=counted,
                layout=sized.layout,
                has_lessons=True,
                window=window,
                seed=seed,
            )._replace(**changes)
            scenario = scenario._replace(has_lessons=scenario.has_lessons and shape.settings.meta_policy)
            times = estimate_times(sized, model, assumed, layout=scenario.layout)
            records = simulate(with_changes(times, measured, noun="time"), scenario)
            yield sized.gpus, name, average(records[cycle:])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainers.experiments.simulate", description="Simulate the steps of a run."
    )
    parser.add_argument("config", type=Path, help="a YAML file, such as configs/verl_rubricem_8b.yaml")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="changes of the config")
    parser.add_argument("--nodes", type=_count, nargs="+", default=list(NODES), help="default: 2 4")
    parser.add_argument("--steps", type=int, default=24, help="default: 24")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--assume", nargs="+", default=[], metavar="KEY=VALUE", help="numbers that do not follow from shapes"
    )
    parser.add_argument(
        "--times", nargs="+", default=[], metavar="KEY=VALUE", help="measured times instead of estimates"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a number of nodes; it must be 1 or more")
    return number


def _document(gpus: int, variant: str, step: StepMeans) -> dict[str, Any]:
    return {
        "gpus": gpus,
        "variant": variant,
        "step_seconds": round(step.step_seconds, 1),
        "parts": {doing: round(seconds, 1) for doing, seconds in step.seconds.items() if seconds},
        "judge_span": round(step.judge_span, 1),
        "judge_hidden": round(step.judge_span - step.judge_exposed, 1),
        "engine_share": round(step.engine_share, 3),
        "binds": step.binds,
    }


def _show(outcomes: Sequence[tuple[int, str, StepMeans]], console: Console) -> None:
    headings = ("step", "rollouts", "judge", "lessons", "A", "B", "swap", "judge works", "hidden", "engine")
    for number in sorted({gpus for gpus, _, _ in outcomes}):
        table = Table(f"[bold]{number} GPUs[/bold], seconds", *headings, box=None, pad_edge=False)
        for column in table.columns[1:]:
            column.justify = "right"
        for gpus, variant, step in outcomes:
            if gpus == number:
                parts = step.seconds.values()
                hidden = max(0.0, step.judge_span - step.judge_exposed)
                cells = [f"{value:.0f}" for value in (step.step_seconds, *parts, step.judge_span, hidden)]
                table.add_row(variant, *cells, f"{step.engine_share:.0%}")
        console.print(table)
    console.print("rollouts, judge, lessons: waits. A, B: training on reflections and on rollouts. judge works: from a")
    console.print(
        "step's first call to its last; hidden: the part of it behind other work. engine: share of time sampling."
    )


if __name__ == "__main__":
    sys.exit(main())
