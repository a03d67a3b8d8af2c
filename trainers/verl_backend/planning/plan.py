"""`--dry-run`: memory, hours, calls and money of a run, with all assumptions, as a table or as one JSON document.

It starts nothing, and the step is an estimate: `research.simulate` simulates what the estimate leaves out.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..refusals import refuse_unfit
from . import estimate
from .quota import judge_bottleneck, judge_need
from .run_shape import Assumptions, ModelShape, RunShape, find_model_shape, read_run_file, read_run_shape, with_changes

NODES = (2, 4)
"""Of eight H100s: the paper's two clusters."""
_COLUMNS = 110
Plan = dict[str, dict[str, float | None]]
"""Sections of named numbers; None is a price that is unknown."""


def make_plan(shape: RunShape, model: ModelShape, assumed: Assumptions) -> Plan:
    """The plan of a run as configured. Nothing is refused here."""
    memory, calls = estimate.plan_memory(shape, model, assumed), estimate.plan_calls(shape, assumed)
    times = estimate.estimate_times(shape, model, assumed, layout=shape.layout)
    step = estimate.estimate_step(times, shape)
    hours = sum(step.values()) * shape.steps / 3_600
    longest = memory.cached_tokens // shape.total_tokens * shape.gpus // shape.tensor_parallel
    dollars = {kind.what: kind.dollars for kind in calls}
    judged = {what: each for what, each in dollars.items() if what.startswith("judge")}
    searched = {what: each for what, each in dollars.items() if what not in judged}
    spent = {"judge": _summed(judged)["total"], "search": _summed(searched)["total"]}
    run = {what: None if each is None else each * shape.steps for what, each in spent.items()}
    # Phase A trains a question's one prompt with each of its candidates, not once.
    again = max(0.0, 1 - times.reflection_tokens / estimate.lesson_tokens(shape, assumed)) * (1 - 1 / times.candidates)
    judges = estimate.judge_gpus(shape, assumed)
    disk = estimate.plan_disk(shape, model, assumed)
    need, rates = judge_need(shape, assumed), shape.settings.judge.rates
    rented = {"GPUs": shape.gpus} | ({"judges' GPUs": judges} if judges else {})
    run |= {what: hours * number * assumed.gpu_hour_dollars for what, number in rented.items()}
    return {
        "training GiB of a GPU": _summed(memory.training),
        "sampling GiB of a GPU": _summed(memory.sampling),
        "memory": {
            "longest sequences at once, of all engines": longest,
            "GiB of a node's own": memory.host_gib,
            "GiB of a checkpoint": memory.checkpoint_gib,
            "GiB of the checkpoints at once, on disk": disk.checkpoints,
            "GiB of the run's record, on disk": disk.record,
        },
        "seconds of a step": _summed({name: seconds for name, seconds in step.items() if seconds}),
        "prompts that candidates repeat": {
            "% of Phase A's tokens": 100 * again,
            "seconds of a step": again * step["trains on reflections"],
        },
        "seconds that the searches of a step need": {**estimate.search_seconds(shape, assumed)},
        "judge, of a step at its largest": {
            "calls": need.calls,
            "million tokens of input": need.input_tokens / 1e6,
            "million tokens of output": need.output_tokens / 1e6,
            "seconds at its rates": need.seconds(rates),
        }
        if need.calls
        else {},
        "run": {"hours": hours, "GPU hours": hours * shape.gpus},
        "judges on own servers": {"GPUs": judges} if judges else {},
        "calls of a step": {kind.what: kind.calls for kind in calls},
        "dollars of a step": _summed(dollars),
        "dollars of the run": _summed(run),
    }


def search_bottleneck(shape: RunShape, model: ModelShape, assumed: Assumptions) -> str:
    """The search engine whose rates bind the step, and what to raise; empty where none does."""
    times = estimate.estimate_times(shape, model, assumed, layout=shape.layout)
    unbound = sum(estimate.estimate_step(times.model_copy(update={"search_seconds": 0.0}), shape).values())
    needed = estimate.search_seconds(shape, assumed)
    if sum(estimate.estimate_step(times, shape).values()) <= unbound:
        return ""
    name = max(needed, key=lambda name: needed[name])
    search = getattr(shape.settings.tools, name)
    rates = search.limits
    return (
        f"{name} ({search.engine}) binds the step: its searches take {needed[name]:.0f} s at "
        f"{rates.requests_per_minute} a minute and {rates.concurrency} at once, and without waiting a step takes "
        f"{unbound:.0f} s. Raise rubricem.tools.{name}.rates as far as your key allows, or cache more with "
        "rubricem.tools.cache.path."
    )


def _summed(parts: Mapping[str, float | None]) -> dict[str, float | None]:
    """The parts and their sum, which is None where one of them is unknown."""
    known = [part for part in parts.values() if part is not None]
    return {"total": sum(known) if len(known) == len(parts) else None, **parts}


def print_plan(
    file: Path, changes: Iterable[str] = (), *, assumptions: Iterable[str] = (), as_json: bool = False
) -> None:
    """Write the plan of a run to standard output.

    Raises:
        ConfigError: the config or an assumption is refused; or, after the plan, the start would be, or the run does not
            fit its own GPUs.
    """
    assumed = with_changes(Assumptions(), assumptions)
    config = read_run_file(file, changes)
    shape = read_run_shape(config)
    model = find_model_shape(shape.model)
    counts = sorted({*NODES, shape.nodes}) if shape.gpus_per_node == 8 else [shape.nodes]
    # On a CPU no GPU is planned.
    sized = [shape.model_copy(update={"nodes": nodes}) for nodes in counts if shape.device != "cpu"]
    plans = {run.gpus: make_plan(run, model, assumed) for run in sized if run.gpus % run.sequence_parallel == 0}
    document = {
        "config": file.stem,
        "model": shape.model,
        "parameters": model.parameters,
        "questions": shape.questions,
        "attempts": shape.group_size,
        "steps": shape.steps,
        "plans": plans,
        "search bottleneck": search_bottleneck(shape, model, assumed) if plans else "",
        "judge bottleneck": judge_bottleneck(shape, model, assumed) if plans else "",
        "assumed": assumed.model_dump(),
        "left out": estimate.NOT_ESTIMATED,
        "prices": [*dict.fromkeys(kind.price for kind in estimate.plan_calls(shape, assumed) if kind.price)],
    }
    if as_json:
        sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
    else:
        _show(document, Console(width=_COLUMNS, highlight=False, file=sys.stdout))
    refuse_unfit(config, shape.settings)
    if plans:
        estimate.refuse_small_gpu(estimate.plan_memory(shape, model, assumed), shape, assumed.gpu_gib)


def _show(document: Mapping[str, Any], console: Console) -> None:
    console.print(
        "[bold]{config}[/bold]: {model} ({0:.2f} billion parameters), {questions} questions x {attempts} attempts a "
        "step, {steps} steps".format(document["parameters"] / 1e9, **document)
    )
    plans: Mapping[int, Plan] = document["plans"]
    if not plans:
        console.print("on the CPU: no GPU memory to plan; the almanac needs no keys and costs nothing")
        return
    table = Table("", *(f"{gpus} GPUs" for gpus in plans), box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    filled = ((section, numbers) for section, numbers in next(iter(plans.values())).items() if numbers)
    for section, numbers in filled:
        table.add_row(f"[bold]{section}[/bold]", *(_cell(plan[section].get("total", "")) for plan in plans.values()))
        for name in (name for name in numbers if name != "total"):
            table.add_row(f"  {name}", *(_cell(plan[section][name]) for plan in plans.values()))
    console.print(table)
    for bottleneck in filter(None, (document["search bottleneck"], document["judge bottleneck"])):
        console.print(f"\n{bottleneck}")
    assumed = ", ".join(f"{name} {value:g}" for name, value in document["assumed"].items())
    console.print(
        "\nthe step is [bold]estimated[/bold] from shapes and assumptions; left out: {left out}\n"
        "simulate the queues: python -m research.simulate CONFIG\n\n"
        "[bold]assumed[/bold], not measured; set with --assume KEY=VALUE\n{0}\n"
        "list prices; batch tariffs, cached input and cached searches cost less\n{1}".format(
            assumed, "\n".join(document["prices"]), **document
        )
    )


def _cell(number: float | str | None) -> str:
    if number is None:
        return "price unknown"
    return number if isinstance(number, str) else f"{number:,.{0 if number >= 100 else 1 if number >= 10 else 2}f}"
