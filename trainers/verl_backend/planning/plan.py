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
from .ranges import at_ends, stage_set_assumptions
from .run_shape import Assumptions, ModelShape, RunShape, find_model_shape, read_run_file, read_run_shape, with_changes
from .savings import Cost, find_savings
from .windows import assume_calls, assumed_ranges, plan_windows

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
    windows = plan_windows(shape, assumed)
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
        "windows of an attempt": {
            "number": windows.number,
            "tokens of each": windows.tokens,
            "prompt tokens that are read again": windows.again,
            "% of all tokens": 100 * windows.again / windows.all_tokens,
            "seconds of a step, of sampling": times.fold_seconds,
            "seconds of a step, of training": times.task_seconds * windows.again / windows.all_tokens,
        }
        if windows.number > 1
        else {},
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


_RANGED = {
    "GiB of a GPU, training": "training GiB of a GPU",
    "seconds of a step": "seconds of a step",
    "dollars of a step, for calls": "dollars of a step",
    "dollars of the run": "dollars of the run",
}
"""What is shown at both ends, and the section of the plan whose total it is."""


def _total(plan: Plan, section: str) -> float | None:
    return plan[section]["total"] if plan[section] else 0.0


def _cost(plan: Plan) -> Cost:
    return Cost(_total(plan, "seconds of a step") or 0.0, _total(plan, "dollars of the run"))


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
    changes, assumptions = list(changes), list(assumptions)
    config = read_run_file(file, changes)
    shape = read_run_shape(config)
    said = stage_set_assumptions(shape.settings.stage_set)
    given = dict.fromkeys([*said, *(written.partition("=")[0] for written in assumptions)])
    assumed = with_changes(Assumptions.model_validate(said), assumptions)
    assumed = assume_calls(assumed, shape, given)
    model = find_model_shape(shape.model)
    counts = sorted({*NODES, shape.nodes}) if shape.gpus_per_node == 8 else [shape.nodes]
    # On a CPU no GPU is planned.
    sized = [shape.model_copy(update={"nodes": nodes}) for nodes in counts if shape.device != "cpu"]
    plans = {run.gpus: make_plan(run, model, assumed) for run in sized if run.gpus % run.sequence_parallel == 0}
    ends = [assume_calls(end, shape, given) for end in at_ends(assumed, given)]
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
        "range": {
            what: [_total(make_plan(shape, model, end), section) for end in ends] for what, section in _RANGED.items()
        }
        if plans
        else {},
        "what to change first": [
            saving._asdict()
            for saving in find_savings(
                lambda more: read_run_shape(read_run_file(file, [*changes, *more])),
                lambda run, at: _cost(make_plan(run, model, at)),
                assumed,
            )
        ]
        if plans
        else [],
        "assumed": assumed.model_dump(),
        "sources": {name: ends._asdict() for name, ends in assumed_ranges(shape).items()},
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
    _show_range(document, console)
    for bottleneck in filter(None, (document["search bottleneck"], document["judge bottleneck"])):
        console.print(f"\n{bottleneck}")
    console.print(
        "\nthe step is [bold]estimated[/bold] from shapes and assumptions; left out: {left out}\n"
        "simulate the queues: python -m research.simulate CONFIG\n\n"
        "list prices; batch tariffs, cached input and cached searches cost less\n{0}\n".format(
            "\n".join(document["prices"]), **document
        )
    )
    console.print(_assumptions(document))


def _show_range(document: Mapping[str, Any], console: Console) -> None:
    """The two ends, and what to change first."""
    ends = Table("if all that is assumed is at its end", "cheap", "dear", box=None, pad_edge=False)
    for what, (cheap, dear) in document["range"].items():
        ends.add_row(what, _cell(cheap), _cell(dear))
    console.print("", ends)
    savings = document["what to change first"]
    if savings:
        table = Table(
            "what to change first", "seconds of a step saved", "dollars of the run saved", box=None, pad_edge=False
        )
        for saving in savings:
            table.add_row(saving["what"], _signed(saving["seconds"]), _signed(saving["dollars"]))
        console.print("", table, "--json has the keys of each change")


def _assumptions(document: Mapping[str, Any]) -> Table:
    table = Table(
        "[bold]assumed[/bold], not measured; set with --assume KEY=VALUE",
        "value",
        "cheap",
        "dear",
        "from",
        box=None,
        pad_edge=False,
    )
    for name, value in document["assumed"].items():
        ends = document["sources"][name]
        table.add_row(name, f"{value:g}", f"{ends['cheap']:g}", f"{ends['dear']:g}", ends["source"])
    return table


def _signed(number: float | None) -> str:
    return "price unknown" if number is None else f"{number:,.0f}"


def _cell(number: float | str | None) -> str:
    if number is None:
        return "price unknown"
    return number if isinstance(number, str) else f"{number:,.{0 if number >= 100 else 1 if number >= 10 else 2}f}"
