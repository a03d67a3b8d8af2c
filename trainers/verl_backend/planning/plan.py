"""The plan of a run: memory, time, calls and money, each with what was assumed.

`--dry-run`: the plan of a run, for people as tables, for programs as one JSON document. Starts nothing.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from trainers.experiments.step_simulation import Scenario, StepMeans, average, simulate
from trainers.verl_backend.planning.estimate import (
    CostPlan,
    MemoryPlan,
    MemoryUse,
    add_known,
    estimate_times,
    plan_cost,
    plan_memory,
    refuse_small_gpu,
)
from trainers.verl_backend.planning.run_shape import (
    Assumptions,
    ModelShape,
    RunShape,
    find_model_shape,
    read_assumptions,
    read_run_file,
    read_run_shape,
)

NODES = (2, 4)
"""Of eight H100s: what the paper trains on."""
_TURNS = 4
"""Turns of the curriculum that are simulated; the first one, which starts from nothing, is not counted."""


class ClusterPlan(NamedTuple):
    """What a run on so many nodes will need."""

    shape: RunShape
    memory: MemoryPlan
    step: StepMeans
    hours: float
    cost: CostPlan


def scenario_of(shape: RunShape, *, steps: int | None = None, seed: int = 0) -> Scenario:
    """The run's own way of stringing a step together."""
    window = shape.settings.window
    return Scenario(
        questions=shape.questions,
        group_size=shape.group_size,
        steps=steps or 2 * window * _TURNS,
        layout=shape.layout,
        has_lessons=shape.settings.meta_policy,
        window=window,
        seed=seed,
    )


def make_plan(shape: RunShape, model: ModelShape, assumed: Assumptions) -> ClusterPlan:
    """The plan of a run as it is set. Nothing is refused here."""
    times = estimate_times(shape, model, assumed, layout=shape.layout)
    turn = 2 * shape.settings.window
    step = average(simulate(times, scenario_of(shape))[turn:])
    hours = step.step_seconds * shape.steps / 3_600
    return ClusterPlan(shape, plan_memory(shape, model, assumed), step, hours, plan_cost(shape, assumed, hours=hours))


def plans_over_nodes(shape: RunShape, model: ModelShape, assumed: Assumptions) -> list[ClusterPlan]:
    """The run on its own nodes, and on the paper's two sizes."""
    counts = sorted({*NODES, shape.nodes}) if shape.gpus_per_node == 8 else [shape.nodes]
    fitting = (shape.model_copy(update={"nodes": nodes}) for nodes in counts)
    return [make_plan(one, model, assumed) for one in fitting if one.gpus % one.sequence_parallel == 0]


def plan_document(plan: ClusterPlan) -> dict[str, Any]:
    """A plan as JSON values."""
    memory, cost = plan.memory, plan.cost
    return {
        "gpus": plan.shape.gpus,
        "memory_gib": {
            "gpu": memory.gpu_gib,
            "training": _parts(memory.training),
            "sampling": _parts(memory.sampling),
            "host": round(memory.host_gib, 2),
            "checkpoint": round(memory.checkpoint_gib, 2),
        },
        "engine": {"cached_tokens": memory.cached_tokens, "longest_sequences": memory.longest},
        "step": {
            "seconds": round(plan.step.step_seconds, 1),
            "parts": {doing.value: round(value, 1) for doing, value in plan.step.seconds.items() if value},
            "binds": plan.step.binds.value,
        },
        "hours": round(plan.hours, 1),
        "gpu_hours": round(plan.hours * plan.shape.gpus, 1),
        "calls": [
            {"what": kind.what, "per_step": round(kind.calls, 1), "dollars_per_step": _rounded(kind.dollars)}
            for kind in cost.kinds
        ],
        "dollars": {
            "step": _rounded(cost.step_dollars),
            "gpus": _rounded(cost.gpu_dollars),
            "run": _rounded(cost.run_dollars),
        },
    }


def _parts(parts: Sequence[MemoryUse]) -> Mapping[str, float]:
    return {part.what: round(part.gib, 2) for part in parts}


def _rounded(dollars: float | None) -> float | None:
    return None if dollars is None else round(dollars, 4)


_COLUMNS = 110
_UNKNOWN = "price unknown"


class PlannedRun(NamedTuple):
    """A run with its plans, one for each number of GPUs."""

    name: str
    shape: RunShape
    model: ModelShape
    assumed: Assumptions
    plans: Sequence[ClusterPlan]


def print_plan(
    file: Path, changes: Iterable[str] = (), *, assumptions: Iterable[str] = (), as_json: bool = False
) -> None:
    """Write the plan of a run to standard output.

    Raises:
        ConfigError: the config or an assumption is refused, or the run does not fit its own GPUs, which is said after
            the plan.
    """
    run = plan_run(file, changes, assumptions=assumptions)
    if as_json:
        sys.stdout.write(json.dumps(document_of(run), allow_nan=False) + "\n")
    else:
        show_plan(run, Console(width=_COLUMNS, highlight=False, file=sys.stdout))
    for plan in run.plans:
        if plan.shape.nodes == run.shape.nodes:
            refuse_small_gpu(plan.memory, plan.shape)


def plan_run(file: Path, changes: Iterable[str] = (), *, assumptions: Iterable[str] = ()) -> PlannedRun:
    """A config's plans. On a CPU there is nothing to plan for: no GPU is shared out and nobody is paid.

    Raises:
        ConfigError: the config or an assumption is refused.
    """
    assumed = read_assumptions(assumptions)
    shape = read_run_shape(read_run_file(file, changes))
    model = find_model_shape(shape.model)
    plans = [] if shape.device == "cpu" else plans_over_nodes(shape, model, assumed)
    return PlannedRun(file.stem, shape, model, assumed, plans)


def document_of(run: PlannedRun) -> dict[str, object]:
    """A planned run as JSON values."""
    return {
        "config": run.name,
        "model": run.shape.model,
        "parameters": run.model.parameters,
        "questions_per_step": run.shape.questions,
        "attempts_per_step": run.shape.attempts,
        "steps": run.shape.steps,
        "device": run.shape.device,
        "plans": [plan_document(plan) for plan in run.plans],
        "assumptions": run.assumed.model_dump(),
    }


def show_plan(run: PlannedRun, console: Console) -> None:
    """The plan as tables, the assumptions under them."""
    shape = run.shape
    console.print(
        f"[bold]{run.name}[/bold]: {shape.model} ({run.model.parameters / 1e9:.2f} billion parameters), "
        f"{shape.questions} questions x {shape.group_size} attempts a step, {shape.steps} steps"
    )
    if not run.plans:
        console.print("on the CPU: no GPU memory to share out, and in the almanac no keys and no money")
        return
    table = Table("", *(f"{plan.shape.gpus} GPUs" for plan in run.plans), box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in (*_memory_rows(run.plans), *_time_rows(run.plans), *_money_rows(run.plans)):
        table.add_row(*row)
    console.print(table)
    console.print("\n[bold]assumed[/bold], not measured; set with --assume KEY=VALUE")
    console.print(", ".join(f"{name} {value:g}" for name, value in run.assumed.model_dump().items()))
    dates = {kind.price.as_of.isoformat() for plan in run.plans for kind in plan.cost.kinds if kind.price}
    if dates:
        console.print(
            f"list prices as of {', '.join(sorted(dates))}; batch tariffs, cached input and cached searches cost less"
        )


def _row(name: str, plans: Sequence[ClusterPlan], value: Callable[[ClusterPlan], str]) -> tuple[str, ...]:
    return (name, *(value(plan) for plan in plans))


def _part_rows(
    plans: Sequence[ClusterPlan], parts: Callable[[ClusterPlan], Sequence[MemoryUse]]
) -> list[tuple[str, ...]]:
    names = [part.what for part in parts(plans[0])]
    return [(f"  {name}", *(f"{parts(plan)[place].gib:.1f}" for plan in plans)) for place, name in enumerate(names)]


def _memory_rows(plans: Sequence[ClusterPlan]) -> list[tuple[str, ...]]:
    return [
        _row("[bold]GiB of a GPU, training[/bold]", plans, lambda plan: f"{plan.memory.training_gib:.1f}"),
        *_part_rows(plans, lambda plan: plan.memory.training),
        _row("[bold]GiB of a GPU, sampling[/bold]", plans, lambda plan: f"{plan.memory.sampling_gib:.1f}"),
        *_part_rows(plans, lambda plan: plan.memory.sampling),
        _row("longest sequences at once, of all engines", plans, lambda plan: str(_longest(plan))),
        _row("GiB of a node's own memory", plans, lambda plan: f"{plan.memory.host_gib:.0f}"),
        _row("GiB of a checkpoint", plans, lambda plan: f"{plan.memory.checkpoint_gib:.0f}"),
    ]


def _longest(plan: ClusterPlan) -> int:
    return plan.memory.longest * plan.shape.gpus // plan.shape.tensor_parallel


def _time_rows(plans: Sequence[ClusterPlan]) -> list[tuple[str, ...]]:
    doings = [doing for doing in plans[0].step.seconds if any(plan.step.seconds[doing] for plan in plans)]
    return [
        _row("[bold]seconds of a step[/bold], simulated", plans, lambda plan: f"{plan.step.step_seconds:.0f}"),
        *((f"  {doing.value}", *(f"{plan.step.seconds[doing]:.0f}" for plan in plans)) for doing in doings),
        _row("[bold]hours of the run[/bold]", plans, lambda plan: f"{plan.hours:,.0f}"),
        _row("GPU hours of the run", plans, lambda plan: f"{plan.hours * plan.shape.gpus:,.0f}"),
    ]


def _money_rows(plans: Sequence[ClusterPlan]) -> list[tuple[str, ...]]:
    kinds = plans[0].cost.kinds
    rows = [(f"  {kind.what}: {kind.calls:,.0f} calls", *(_dollars(kind.dollars) for _ in plans)) for kind in kinds]
    judge = add_known(kind.dollars for kind in kinds if kind.what.startswith("judge"))
    search = add_known(kind.dollars for kind in kinds if not kind.what.startswith("judge"))
    steps = plans[0].shape.steps
    return [
        _row("[bold]dollars of a step[/bold], without GPUs", plans, lambda plan: _dollars(plan.cost.step_dollars)),
        *rows,
        _row("[bold]dollars of the run[/bold]", plans, lambda plan: _dollars(plan.cost.run_dollars)),
        _row("  judge", plans, lambda _: _dollars(None if judge is None else judge * steps)),
        _row("  search", plans, lambda _: _dollars(None if search is None else search * steps)),
        _row("  GPUs", plans, lambda plan: _dollars(plan.cost.gpu_dollars)),
    ]


def _dollars(amount: float | None) -> str:
    if amount is None:
        return _UNKNOWN
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:,.2f}"
