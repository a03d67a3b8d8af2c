"""The plan of a run: memory, time, calls and money, each with what was assumed."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trainers.verl_backend.planning.assumptions import Assumptions
from trainers.verl_backend.planning.cost import CostPlan, plan_cost
from trainers.verl_backend.planning.memory import MemoryPlan, Part, plan_memory
from trainers.verl_backend.planning.model_shape import ModelShape
from trainers.verl_backend.planning.phase_times import estimate_times
from trainers.verl_backend.planning.run_shape import RunShape
from trainers.verl_backend.planning.step_record import StepMeans, average
from trainers.verl_backend.planning.step_simulation import Scenario, simulate

NODES = (2, 4)
"""Of eight H100s: what the paper trains on."""
_TURNS = 4
"""Turns of the curriculum that are simulated; the first one, which starts from nothing, is not counted."""


class Plan(NamedTuple):
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


def make_plan(shape: RunShape, model: ModelShape, assumed: Assumptions) -> Plan:
    """The plan of a run as it is set. Nothing is refused here."""
    times = estimate_times(shape, model, assumed, layout=shape.layout)
    turn = 2 * shape.settings.window
    step = average(simulate(times, scenario_of(shape))[turn:])
    hours = step.step_seconds * shape.steps / 3_600
    return Plan(shape, plan_memory(shape, model, assumed), step, hours, plan_cost(shape, assumed, hours=hours))


def plans_over_nodes(shape: RunShape, model: ModelShape, assumed: Assumptions) -> list[Plan]:
    """The run on its own nodes, and on the paper's two sizes."""
    counts = sorted({*NODES, shape.nodes}) if shape.gpus_per_node == 8 else [shape.nodes]
    fitting = (shape.model_copy(update={"nodes": nodes}) for nodes in counts)
    return [make_plan(one, model, assumed) for one in fitting if one.gpus % one.sequence_parallel == 0]


def plan_document(plan: Plan) -> dict[str, Any]:
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


def _parts(parts: Sequence[Part]) -> Mapping[str, float]:
    return {part.what: round(part.gib, 2) for part in parts}


def _rounded(dollars: float | None) -> float | None:
    return None if dollars is None else round(dollars, 4)
