"""`--dry-run`: the plan of a run, for people as tables, for programs as one JSON document. Starts nothing."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from trainers.verl_backend.planning.assumptions import Assumptions, read_assumptions
from trainers.verl_backend.planning.cost import add_known
from trainers.verl_backend.planning.memory import Part, refuse_small_gpu
from trainers.verl_backend.planning.model_shape import ModelShape, find_model_shape
from trainers.verl_backend.planning.plan import Plan, plan_document, plans_over_nodes
from trainers.verl_backend.planning.run_file import read_run_file
from trainers.verl_backend.planning.run_shape import RunShape, read_run_shape

_COLUMNS = 110
_UNKNOWN = "price unknown"


class PlannedRun(NamedTuple):
    """A run with its plans, one for each number of GPUs."""

    name: str
    shape: RunShape
    model: ModelShape
    assumed: Assumptions
    plans: Sequence[Plan]


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


def _row(name: str, plans: Sequence[Plan], value: Callable[[Plan], str]) -> tuple[str, ...]:
    return (name, *(value(plan) for plan in plans))


def _part_rows(plans: Sequence[Plan], parts: Callable[[Plan], Sequence[Part]]) -> list[tuple[str, ...]]:
    names = [part.what for part in parts(plans[0])]
    return [(f"  {name}", *(f"{parts(plan)[place].gib:.1f}" for plan in plans)) for place, name in enumerate(names)]


def _memory_rows(plans: Sequence[Plan]) -> list[tuple[str, ...]]:
    return [
        _row("[bold]GiB of a GPU, training[/bold]", plans, lambda plan: f"{plan.memory.training_gib:.1f}"),
        *_part_rows(plans, lambda plan: plan.memory.training),
        _row("[bold]GiB of a GPU, sampling[/bold]", plans, lambda plan: f"{plan.memory.sampling_gib:.1f}"),
        *_part_rows(plans, lambda plan: plan.memory.sampling),
        _row("longest sequences at once, of all engines", plans, lambda plan: str(_longest(plan))),
        _row("GiB of a node's own memory", plans, lambda plan: f"{plan.memory.host_gib:.0f}"),
        _row("GiB of a checkpoint", plans, lambda plan: f"{plan.memory.checkpoint_gib:.0f}"),
    ]


def _longest(plan: Plan) -> int:
    return plan.memory.longest * plan.shape.gpus // plan.shape.tensor_parallel


def _time_rows(plans: Sequence[Plan]) -> list[tuple[str, ...]]:
    doings = [doing for doing in plans[0].step.seconds if any(plan.step.seconds[doing] for plan in plans)]
    return [
        _row("[bold]seconds of a step[/bold], simulated", plans, lambda plan: f"{plan.step.step_seconds:.0f}"),
        *((f"  {doing.value}", *(f"{plan.step.seconds[doing]:.0f}" for plan in plans)) for doing in doings),
        _row("[bold]hours of the run[/bold]", plans, lambda plan: f"{plan.hours:,.0f}"),
        _row("GPU hours of the run", plans, lambda plan: f"{plan.hours * plan.shape.gpus:,.0f}"),
    ]


def _money_rows(plans: Sequence[Plan]) -> list[tuple[str, ...]]:
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
