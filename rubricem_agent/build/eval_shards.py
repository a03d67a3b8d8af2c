"""One run in several processes over a Ray cluster: each part with logs of its own, which the run then takes over."""

import asyncio
from importlib import import_module
from pathlib import Path

from rubricem_agent.build.eval_files import HUB
from rubricem_agent.build.eval_plan import plan_run
from rubricem_agent.build.evals import FinishedRun, run_evaluation
from rubricem_agent.config.evals import EvalConfig
from rubricem_env.domain.errors import MissingExtraError


def run_over_ray(config: EvalConfig, shards: int) -> FinishedRun:
    """Every part as one task of a cluster that sees the same folders; then the run itself, with what they did.

    A part that dies is tried again by Ray, and goes on from its own logs. What no part did is done here.

    Raises:
        MissingExtraError: ray is not installed.
    """
    try:
        ray = import_module("ray")
    except ModuleNotFoundError as cause:
        raise MissingExtraError("ray", "verl", "sharding an evaluation over a cluster") from cause
    anywhere = with_absolute_paths(config)
    plan_run(anywhere)
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    part = ray.remote(max_retries=3)(run_part)
    text = anywhere.model_dump_json()
    ray.get([part.remote(text, number, shards) for number in range(1, shards + 1)])
    return asyncio.run(run_evaluation(plan_run(config)))


def run_part(config: str, number: int, *, shards: int) -> None:
    """One part, from settings as JSON: what a worker is sent."""
    # Not strict: JSON has lists for tuples.
    whole = EvalConfig.model_validate_json(config, strict=False)
    asyncio.run(run_evaluation(plan_run(whole.model_copy(update={"shard": (number, shards)}))))


def with_absolute_paths(config: EvalConfig) -> EvalConfig:
    """The same run from any working directory. The policy's name stays as it is: it names the agent."""
    is_here = bool(config.data) and not config.data.startswith(HUB)
    return config.model_copy(
        update={
            "out": config.folder.resolve(),
            "data": str(Path(config.data).expanduser().resolve()) if is_here else config.data,
        }
    )
