"""Runs calls as tasks of a Ray cluster, which share the limits of the search engines."""

from collections.abc import Callable, Sequence
from contextlib import chdir
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from rubricem_env.domain.errors import ConfigError, RubricEMError
from rubricem_env.llm.limits.limiter import LimiterOf
from rubricem_env.llm.limits.shared_limits import RemoteLimiter, SharedLimits

ResultT = TypeVar("ResultT")


_RAY = "ray>=2.60,<2.61"
_MAX_WAITING = 100_000
"""Calls of all processes that may wait for their turns at once."""


def run_on_ray(work: Callable[..., ResultT], calls: Sequence[tuple[Any, ...]], *, what: str) -> list[ResultT]:
    """One task for each call, on this machine or on the cluster of RAY_ADDRESS; a task that dies is run again.

    Ray puts the driver's folder on its workers' module path, and the modules that lie there would run with our keys:
    the folder is that of this package while Ray starts. A failure of ours is raised as it was in the worker. Each task
    gets the actor of the limits that all share as its last argument.

    Raises:
        ConfigError: Ray is not installed, or does not start.
    """
    try:
        ray: Any = import_module("ray")
    except ModuleNotFoundError as cause:
        raise ConfigError(f"{what} needs ray, which is not installed. Run: pip install '{_RAY}'") from cause
    try:
        with chdir(Path(__file__).parents[2]):
            ray.init(include_dashboard=False, ignore_reinit_error=True, log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as cause:
        raise ConfigError(
            f"Ray does not start: {cause}. Check RAY_ADDRESS and the cluster, or run without --ray."
        ) from cause
    try:
        task = ray.remote(max_retries=3)(work)
        service = ray.remote(SharedLimits).options(num_cpus=0, max_concurrency=_MAX_WAITING).remote()
        results: list[ResultT] = ray.get([task.remote(*call, service) for call in calls])
    except ray.exceptions.RayTaskError as failure:
        raise failure.cause if isinstance(failure.cause, RubricEMError) else failure from None
    finally:
        ray.shutdown()
    return results


def limits_of(service: Any) -> LimiterOf:
    """The limiters of a Ray actor with the methods of `SharedLimits`."""
    return partial(RemoteLimiter, enter=service.enter.remote, leave=service.leave.remote)
