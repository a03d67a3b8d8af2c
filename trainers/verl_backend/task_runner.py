"""The process in which veRL's trainer runs, with our trainers and agent loop known to it."""

from typing import Any

import ray  # type: ignore[import-not-found,unused-ignore]
from omegaconf import OmegaConf, open_dict  # type: ignore[import-not-found,unused-ignore]
from ray.exceptions import RayActorError, RayError, RayTaskError  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.utils import need_critic, need_reference_policy  # type: ignore[import-not-found,unused-ignore]
from verl.utils.config import validate_config  # type: ignore[import-not-found,unused-ignore]

from rubricem_env.domain.errors import RubricEMError
from trainers.verl_backend import trainer
from trainers.verl_backend.agent_loop import LOOPS_FILE
from trainers.verl_backend.time_limits import WorkerLostError


class TaskRunner(TaskRunnerV1.__ray_metadata__.modified_class):  # type: ignore[misc,name-defined,unused-ignore]
    """veRL's own. That this module imports our trainers is what makes their names known in its process."""

    trainers = trainer.TRAINERS


def train(config: Any) -> None:
    """Run to the end; Ray is shut down on the way out, and with it every process of the run.

    Raises:
        RubricEMError: what stopped the run, wherever it was raised.
    """
    with open_dict(config):
        config.actor_rollout_ref.rollout.agent.agent_loop_config_path = str(LOOPS_FILE)
    OmegaConf.resolve(config)
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    try:
        run_ppo(config, task_runner_class=ray.remote(num_cpus=1)(TaskRunner))
    except RayError as failure:
        raise root_cause(failure) from failure
    finally:
        ray.shutdown()


def root_cause(failure: BaseException) -> BaseException:
    """Our own error under Ray's wrappings, or the death of a process; the failure itself where it is neither."""
    inner: BaseException | None = failure
    while inner is not None:
        if isinstance(inner, RubricEMError) and not isinstance(inner, RayError):
            return inner
        if isinstance(inner, RayActorError) and not isinstance(inner, RayTaskError):
            return WorkerLostError.of(str(inner))
        inner = getattr(inner, "cause", None) or inner.__cause__
    return failure
