"""Runs an evaluation in parts on a Ray cluster."""

import asyncio
import os
from typing import Any

from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.evals import FinishedRun, run_evaluation
from rubricem_agent.wiring.on_ray import limits_of, run_on_ray


def run_over_ray(config: EvalConfig, shards: int) -> FinishedRun:
    """Run every part as one task of a cluster that sees the same folders, then the run itself, which merges them.

    Ray retries a part that dies, which resumes from its own logs. What no part did is done here. The parts share the
    rates of the search engines; each has its part of the concurrency and of the budget.

    Raises:
        ConfigError: ray is not installed.
        ConfigError: Ray does not start.
    """
    plan_run(config)

    def share(limit: int) -> int:
        return max(1, limit // shards)

    limits = {name: share(getattr(config, name)) for name in type(config).model_fields if name.endswith("concurrency")}
    part = config.model_copy(update={**limits, "budget": config.budget and config.budget / shards})
    settings = part.model_dump_json()
    folder = os.getcwd()
    calls = [(settings, folder, number, shards) for number in range(1, shards + 1)]
    run_on_ray(_run_part, calls, what="sharding an evaluation")
    return asyncio.run(run_evaluation(plan_run(config)))


def _run_part(config: str, folder: str, number: int, shards: int, service: Any) -> None:
    """Run one part in a worker, from settings as JSON whose paths begin at `folder`."""
    os.chdir(folder)
    # Not strict: JSON has lists for tuples.
    whole = EvalConfig.model_validate_json(config, strict=False)
    planned = plan_run(whole.model_copy(update={"shard": (number, shards)}))
    asyncio.run(run_evaluation(planned, limiter_of=limits_of(service)))
