"""What binds a step, where the judge's minutes go, and what deferral saves: the run of a config in simulated time.

    python -m trainers.experiments.simulate configs/verl_rubricem_8b.yaml [--nodes 2 4] [--json]
    python -m trainers.experiments.simulate configs/verl_rubricem_8b.yaml --times task_seconds=80 swap_seconds=12

Times are estimated from shapes and assumptions until measured ones are put in with --times.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from rubricem_agent.config import parse_yaml_assignment
from rubricem_env.domain.errors import ConfigError, RubricEMError, suggest_name
from rubricem_env.domain.trajectory import first_problem
from trainers.experiments.step_simulation import Doing, Scenario, StepMeans, average, simulate
from trainers.verl_backend.planning.estimate import PhaseTimes, estimate_times
from trainers.verl_backend.planning.plan import NODES, scenario_of
from trainers.verl_backend.planning.run_shape import (
    Assumptions,
    RunShape,
    find_model_shape,
    read_assumptions,
    read_run_file,
    read_run_shape,
)

_COLUMNS = 120


class Variant(NamedTuple):
    """One way of stringing a step together, under the name that the table gives it."""

    name: str
    changes: dict[str, Any]


VARIANTS = (
    Variant("in turn, in lockstep, waits for reflections", {"layout": "sync", "in_lockstep": True, "defers": False}),
    Variant("in turn, in lockstep, deferred", {"layout": "sync", "in_lockstep": True}),
    Variant("in turn, deferred", {"layout": "sync"}),
    Variant("a step ahead, waits for reflections", {"layout": "async", "defers": False}),
    Variant("a step ahead, deferred", {"layout": "async"}),
    Variant("a step ahead, no meta-policy", {"layout": "async", "has_lessons": False}),
    Variant("half sample, half train, deferred", {"layout": "separate"}),
)
"""From the plainest to what `rubricem_async` does, and beside it the layout of the paper's codebase."""


class SimulatedStep(NamedTuple):
    """An average step of a variant on so many GPUs."""

    gpus: int
    variant: str
    step: StepMeans


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate and print; 2 and one sentence on stderr for a mistake."""
    chosen = _parser().parse_args(arguments)
    try:
        assumed = read_assumptions(chosen.assume)
        shape = read_run_shape(read_run_file(chosen.config, chosen.changes))
        outcomes = list(
            simulate_variants(
                shape, assumed, nodes=chosen.nodes, steps=chosen.steps, seed=chosen.seed, measured=chosen.times
            )
        )
    except RubricEMError as mistake:
        sys.stderr.write(f"simulate: {mistake}\n")
        return 2
    if chosen.json:
        sys.stdout.write(json.dumps([_document(outcome) for outcome in outcomes], allow_nan=False) + "\n")
    else:
        _show(outcomes, Console(width=_COLUMNS, highlight=False, file=sys.stdout))
    return 0


def simulate_variants(
    shape: RunShape,
    assumed: Assumptions,
    *,
    nodes: Iterable[int],
    steps: int,
    seed: int = 0,
    measured: Iterable[str] = (),
) -> Iterator[SimulatedStep]:
    """Every variant on every number of nodes. The first turn of the curriculum is simulated and not counted.

    Raises:
        ConfigError: a time is refused, or there are too few steps for a whole turn after the first.
    """
    turn = 2 * shape.settings.window
    counted = steps // turn * turn
    if counted < 2 * turn:
        raise ConfigError(f"--steps is {steps}; whole turns are counted, after the first: {2 * turn} or more.")
    model = find_model_shape(shape.model)
    for number in nodes:
        sized = shape.model_copy(update={"nodes": number})
        for variant in VARIANTS:
            scenario = scenario_of(sized, steps=counted, seed=seed)._replace(**variant.changes)
            if scenario.has_lessons and not shape.settings.meta_policy:
                scenario = scenario._replace(has_lessons=False)
            times = estimate_times(sized, model, assumed, layout=scenario.layout)
            outcome = run_scenario(with_measured(times, measured), scenario)
            yield SimulatedStep(sized.gpus, variant.name, outcome)


def run_scenario(times: PhaseTimes, scenario: Scenario) -> StepMeans:
    """An average step, the first turn of the curriculum left out."""
    return average(simulate(times, scenario)[2 * scenario.window :])


def with_measured(times: PhaseTimes, changes: Iterable[str]) -> PhaseTimes:
    """Times with KEY=VALUE changes.

    Raises:
        ConfigError: there is no such time, or its value is out of range.
    """
    fields = times.model_dump()
    for change in changes:
        key, value = parse_yaml_assignment(change, example="task_seconds=80")
        if key not in PhaseTimes.model_fields:
            raise ConfigError(f"unknown time {key!r}; {suggest_name(key, PhaseTimes.model_fields)}")
        fields[key] = value
    try:
        return PhaseTimes.model_validate(fields, strict=False)
    except ValidationError as cause:
        raise ConfigError(f"a time is refused {first_problem(cause)}") from cause


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainers.experiments.simulate", description="Simulate the steps of a run."
    )
    parser.add_argument("config", type=Path, help="a YAML file, such as configs/verl_rubricem_8b.yaml")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="changes of the config")
    parser.add_argument("--nodes", type=_count, nargs="+", default=list(NODES), help="default: 2 4")
    parser.add_argument("--steps", type=int, default=24, help="default: 24")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--assume", nargs="+", default=[], metavar="KEY=VALUE", help="what shapes do not tell")
    parser.add_argument(
        "--times", nargs="+", default=[], metavar="KEY=VALUE", help="measured times, in place of estimates"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is no number of nodes; it is 1 or more")
    return number


def _document(outcome: SimulatedStep) -> dict[str, Any]:
    step = outcome.step
    return {
        "gpus": outcome.gpus,
        "variant": outcome.variant,
        "step_seconds": round(step.step_seconds, 1),
        "parts": {doing.value: round(seconds, 1) for doing, seconds in step.seconds.items() if seconds},
        "judge_span": round(step.judge_span, 1),
        "judge_hidden": round(step.judge_span - step.judge_exposed, 1),
        "engine_share": round(step.engine_share, 3),
        "binds": step.binds.value,
    }


def _show(outcomes: Sequence[SimulatedStep], console: Console) -> None:
    for gpus in sorted({outcome.gpus for outcome in outcomes}):
        headings = (
            "step",
            "rollouts",
            "judge",
            "lessons",
            "A",
            "B",
            "swap",
            "judge works",
            "hidden",
            "engine",
        )
        table = Table(f"[bold]{gpus} GPUs[/bold], seconds", *headings, box=None, pad_edge=False)
        for column in table.columns[1:]:
            column.justify = "right"
        for outcome in outcomes:
            if outcome.gpus == gpus:
                table.add_row(outcome.variant, *_cells(outcome.step))
        console.print(table)
    console.print(
        "rollouts, judge, lessons: waited for. A, B: trained on lessons and on rollouts. judge works: from a step's"
    )
    console.print(
        "first call to its last; hidden: of that, behind other work. engine: share of the time in which it samples."
    )


def _cells(step: StepMeans) -> list[str]:
    parts = [step.seconds[doing] for doing in Doing if doing is not Doing.WAIT]
    hidden = max(0.0, step.judge_span - step.judge_exposed)
    return [
        *(f"{value:.0f}" for value in (step.step_seconds, *parts, step.judge_span, hidden)),
        f"{step.engine_share:.0%}",
    ]


if __name__ == "__main__":
    sys.exit(main())
