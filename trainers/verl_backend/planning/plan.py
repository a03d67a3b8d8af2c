"""`--dry-run`: memory, hours, calls and money of a run, with all assumptions, as tables or as one JSON document.

It starts nothing, and the step is an estimate: `trainers.experiments.simulate` simulates what the estimate leaves out.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from .estimate import (
    NOT_ESTIMATED,
    CallKind,
    MemoryPlan,
    add_known,
    estimate_step,
    estimate_times,
    plan_calls,
    plan_memory,
    refuse_small_gpu,
    search_seconds,
)
from .run_shape import (
    Assumptions,
    ModelShape,
    RunShape,
    find_model_shape,
    read_assumptions,
    read_run_file,
    read_run_shape,
)

NODES = (2, 4)
"""Of eight H100s: the paper's two clusters."""
_COLUMNS = 110
_UNKNOWN = "price unknown"


class ClusterPlan(NamedTuple):
    """The plan of a run on one number of nodes."""

    shape: RunShape
    memory: MemoryPlan
    step: Mapping[str, float]
    """Seconds of an average step by what the trainer does or waits for."""
    calls: tuple[CallKind, ...]
    gpu_hour_dollars: float
    search: Mapping[str, float]
    """Seconds that each search engine needs for a step under its rates."""
    seconds_unbound: float
    """Of a step whose searches never wait for their turns."""

    @property
    def search_bottleneck(self) -> str:
        """The engine that binds the step and what to raise; empty where none does."""
        if self.step_seconds <= self.seconds_unbound:
            return ""
        name = max(self.search, key=lambda name: self.search[name])
        rates = getattr(self.shape.settings.tools, name).rates
        return (
            f"{name} binds the step: its searches take {self.search[name]:.0f} s at {rates.requests_per_minute} a minute "
            f"and {rates.concurrency} at once, and without waiting a step takes {self.seconds_unbound:.0f} s. Raise "
            f"rubricem.tools.{name}.rates as far as your key allows, or cache more with rubricem.tools.cache.path."
        )

    @property
    def step_seconds(self) -> float:
        return sum(self.step.values())

    @property
    def hours(self) -> float:
        return self.step_seconds * self.shape.steps / 3_600

    @property
    def gpu_dollars(self) -> float:
        """Of the run."""
        return self.hours * self.shape.gpus * self.gpu_hour_dollars

    @property
    def step_dollars(self) -> float | None:
        """Of the calls; None where a price is unknown."""
        return add_known(kind.dollars for kind in self.calls)

    @property
    def run_dollars(self) -> float | None:
        """With the GPUs."""
        return None if self.step_dollars is None else self.step_dollars * self.shape.steps + self.gpu_dollars


def make_plan(shape: RunShape, model: ModelShape, assumed: Assumptions) -> ClusterPlan:
    """The plan of a run as configured. Nothing is refused here."""
    times = estimate_times(shape, model, assumed, layout=shape.layout)
    unbound = estimate_step(times.model_copy(update={"search_seconds": 0.0}), shape)
    return ClusterPlan(
        shape,
        plan_memory(shape, model, assumed),
        estimate_step(times, shape),
        plan_calls(shape, assumed),
        assumed.gpu_hour_dollars,
        search_seconds(shape, assumed),
        sum(unbound.values()),
    )


def plans_over_nodes(shape: RunShape, model: ModelShape, assumed: Assumptions) -> list[ClusterPlan]:
    """The plans for the run's own number of nodes and for the paper's; none on a CPU, where no GPU is planned."""
    if shape.device == "cpu":
        return []
    counts = sorted({*NODES, shape.nodes}) if shape.gpus_per_node == 8 else [shape.nodes]
    sized = (shape.model_copy(update={"nodes": nodes}) for nodes in counts)
    return [make_plan(one, model, assumed) for one in sized if one.gpus % one.sequence_parallel == 0]


def print_plan(
    file: Path, changes: Iterable[str] = (), *, assumptions: Iterable[str] = (), as_json: bool = False
) -> None:
    """Write the plan of a run to standard output.

    Raises:
        ConfigError: the config or an assumption is refused; or, after the plan, the run does not fit its own GPUs.
    """
    assumed = read_assumptions(assumptions)
    shape = read_run_shape(read_run_file(file, changes))
    model = find_model_shape(shape.model)
    plans = plans_over_nodes(shape, model, assumed)
    if as_json:
        document = {
            "config": file.stem,
            "model": shape.model,
            "parameters": model.parameters,
            "questions_per_step": shape.questions,
            "attempts_per_step": shape.attempts,
            "steps": shape.steps,
            "device": shape.device,
            "plans": [plan_document(plan) for plan in plans],
            "assumptions": assumed.model_dump(),
            "not_estimated": NOT_ESTIMATED,
        }
        sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
    else:
        console = Console(width=_COLUMNS, highlight=False, file=sys.stdout)
        console.print(
            f"[bold]{file.stem}[/bold]: {shape.model} ({model.parameters / 1e9:.2f} billion parameters), "
            f"{shape.questions} questions x {shape.group_size} attempts a step, {shape.steps} steps"
        )
        _show(plans, assumed, console)
    for plan in plans:
        if plan.shape.nodes == shape.nodes:
            refuse_small_gpu(plan.memory, plan.shape)


def plan_document(plan: ClusterPlan) -> dict[str, Any]:
    """A plan as JSON values."""
    memory = plan.memory
    return {
        "gpus": plan.shape.gpus,
        "memory_gib": {
            "gpu": memory.gpu_gib,
            "training": {name: round(gib, 2) for name, gib in memory.training.items()},
            "sampling": {name: round(gib, 2) for name, gib in memory.sampling.items()},
            "host": round(memory.host_gib, 2),
            "checkpoint": round(memory.checkpoint_gib, 2),
        },
        "engine": {"cached_tokens": memory.cached_tokens, "longest_sequences": memory.longest},
        "step": {
            "seconds": round(plan.step_seconds, 1),
            "parts": {name: round(seconds, 1) for name, seconds in plan.step.items() if seconds},
            "binds": max(plan.step, key=lambda name: plan.step[name]),
            "searches": {name: round(seconds, 1) for name, seconds in plan.search.items()},
            "search_bottleneck": plan.search_bottleneck or None,
        },
        "hours": round(plan.hours, 1),
        "gpu_hours": round(plan.hours * plan.shape.gpus, 1),
        "calls": [
            {"what": kind.what, "per_step": round(kind.calls, 1), "dollars_per_step": _rounded(kind.dollars)}
            for kind in plan.calls
        ],
        "dollars": {
            "step": _rounded(plan.step_dollars),
            "gpus": _rounded(plan.gpu_dollars),
            "run": _rounded(plan.run_dollars),
        },
    }


def _rounded(dollars: float | None) -> float | None:
    return None if dollars is None else round(dollars, 4)


def _show(plans: Sequence[ClusterPlan], assumed: Assumptions, console: Console) -> None:
    """Print the plans as one table, with the assumptions below."""
    if not plans:
        console.print("on the CPU: no GPU memory to plan; the almanac needs no keys and costs nothing")
        return
    table = Table("", *(f"{plan.shape.gpus} GPUs" for plan in plans), box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, cells in (*_memory_rows(plans), *_time_rows(plans), *_money_rows(plans)):
        table.add_row(name, *cells)
    console.print(table)
    for plan in plans[-1:]:
        if plan.search_bottleneck:
            console.print(f"\n{plan.search_bottleneck}")
    console.print(f"\nthe step is [bold]estimated[/bold] from shapes and assumptions; left out: {NOT_ESTIMATED}")
    console.print("simulate the queues: python -m trainers.experiments.simulate CONFIG")
    console.print("\n[bold]assumed[/bold], not measured; set with --assume KEY=VALUE")
    console.print(", ".join(f"{name} {value:g}" for name, value in assumed.model_dump().items()))
    dates = {kind.price.as_of.isoformat() for plan in plans for kind in plan.calls if kind.price}
    if dates:
        console.print(
            f"list prices as of {', '.join(sorted(dates))}; batch tariffs, cached input and cached searches cost less"
        )


Rows = list[tuple[str, list[str]]]
"""A name and a cell for each plan."""


def _memory_rows(plans: Sequence[ClusterPlan]) -> Rows:
    rows: Rows = []
    memory = {
        "training": [plan.memory.training for plan in plans],
        "sampling": [plan.memory.sampling for plan in plans],
    }
    for phase, uses in memory.items():
        rows.append((f"[bold]GiB of a GPU, {phase}[/bold]", [f"{sum(use.values()):.1f}" for use in uses]))
        rows.extend((f"  {name}", [f"{use[name]:.1f}" for use in uses]) for name in uses[0])
    longest = [plan.memory.longest * plan.shape.gpus // plan.shape.tensor_parallel for plan in plans]
    return [
        *rows,
        ("longest sequences at once, of all engines", [str(number) for number in longest]),
        ("GiB of a node's own memory", [f"{plan.memory.host_gib:.0f}" for plan in plans]),
        ("GiB of a checkpoint", [f"{plan.memory.checkpoint_gib:.0f}" for plan in plans]),
    ]


def _time_rows(plans: Sequence[ClusterPlan]) -> Rows:
    names = [name for name in plans[0].step if any(plan.step[name] for plan in plans)]
    return [
        ("[bold]seconds of a step[/bold], estimated", [f"{plan.step_seconds:.0f}" for plan in plans]),
        *((f"  {name}", [f"{plan.step[name]:.0f}" for plan in plans]) for name in names),
        *((f"  searches with {name} need", [f"{plan.search[name]:.0f}" for plan in plans]) for name in plans[0].search),
        ("[bold]hours of the run[/bold]", [f"{plan.hours:,.0f}" for plan in plans]),
        ("GPU hours of the run", [f"{plan.hours * plan.shape.gpus:,.0f}" for plan in plans]),
    ]


def _money_rows(plans: Sequence[ClusterPlan]) -> Rows:
    """Calls cost the same on every number of nodes."""
    kinds, steps = plans[0].calls, plans[0].shape.steps
    judge = add_known(kind.dollars for kind in kinds if kind.what.startswith("judge"))
    search = add_known(kind.dollars for kind in kinds if not kind.what.startswith("judge"))
    of_run = {name: None if step is None else step * steps for name, step in (("judge", judge), ("search", search))}
    return [
        ("[bold]dollars of a step[/bold], without GPUs", [_dollars(plan.step_dollars) for plan in plans]),
        *((f"  {kind.what}: {kind.calls:,.0f} calls", [_dollars(kind.dollars)] * len(plans)) for kind in kinds),
        ("[bold]dollars of the run[/bold]", [_dollars(plan.run_dollars) for plan in plans]),
        *((f"  {name}", [_dollars(dollars)] * len(plans)) for name, dollars in of_run.items()),
        ("  GPUs", [_dollars(plan.gpu_dollars) for plan in plans]),
    ]


def _dollars(amount: float | None) -> str:
    if amount is None:
        return _UNKNOWN
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:,.2f}"
