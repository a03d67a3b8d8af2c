"""Runs an evaluation in parts on a Ray cluster."""

import asyncio
import os
from typing import Any

from rubricem_agent.evals.resumed_run import has_lines
from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import PlannedEvaluation, plan_run
from rubricem_agent.wiring.evals import SHARDS, FinishedRun, run_evaluation
from rubricem_agent.wiring.on_ray import limits_of, run_on_ray
from rubricem_agent.wiring.stored_runs import read_logs, read_parts


def run_over_ray(config: EvalConfig, shards: int) -> FinishedRun:
    """Run every part as one task of a cluster that sees the same folders, then the run itself, which merges them.

    Ray retries a part that dies, which resumes from its own logs. What no part did is done here. The parts share the
    rates of the search engines; each has its part of the concurrency and of the budget.

    Raises:
        ConfigError: ray is not installed.
        ConfigError: Ray does not start.
    """
    answered, judged = _done(plan_run(config))

    def share(limit: int) -> int:
        return max(1, limit // shards)

    limits = {name: share(getattr(config, name)) for name in type(config).model_fields if name.endswith("concurrency")}
    part = config.model_copy(update={**limits, "budget": config.budget and config.budget / shards})
    settings = part.model_dump_json()
    folder = os.getcwd()
    calls = [(settings, folder, number, shards) for number in range(1, shards + 1)]
    run_on_ray(_run_part, calls, what="sharding an evaluation")
    finished = asyncio.run(run_evaluation(plan_run(config)))
    # To this process everything that the parts did was there before; to the user it is of this start.
    runner = finished.runner
    runner.answered += runner.answered_before - answered
    runner.judged += runner.judged_before - judged
    runner.answered_before, runner.judged_before = answered, judged
    return finished


def _done(planned: PlannedEvaluation) -> tuple[int, int]:
    """How many cases the logs of the run and of its parts hold answered, and how many judged."""
    folder = planned.config.folder
    logs = [*read_parts(folder / SHARDS, planned.manifest), *([read_logs(folder)] if has_lines(folder) else [])]
    answered = {record.key for answers, _ in logs for record in answers.records if record.is_final}
    judged = {record.key.case for _, verdicts in logs for record in verdicts.records if record.is_final}
    return len(answered), len(judged if planned.manifest.judges else answered)


def _run_part(config: str, folder: str, number: int, shards: int, service: Any) -> None:
    """Run one part in a worker, from settings as JSON whose paths begin at `folder`."""
    os.chdir(folder)
    # Not strict: JSON has lists for tuples.
    whole = EvalConfig.model_validate_json(config, strict=False)
    planned = plan_run(whole.model_copy(update={"shard": (number, shards)}))
    asyncio.run(run_evaluation(planned, limiter_of=limits_of(service)))
