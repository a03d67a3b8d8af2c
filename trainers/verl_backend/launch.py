"""The process in which veRL's trainer runs, with our trainers and agent loop known to it."""

import os
import socket
from pathlib import Path
from typing import Any

import ray  # type: ignore[import-not-found,unused-ignore]
from omegaconf import OmegaConf, open_dict  # type: ignore[import-not-found,unused-ignore]
from ray.exceptions import RayActorError, RayError, RayTaskError  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.utils import need_critic, need_reference_policy  # type: ignore[import-not-found,unused-ignore]
from verl.utils.config import validate_config  # type: ignore[import-not-found,unused-ignore]

from rubricem_env.domain.errors import BoundaryError, RubricEMError
from trainers.verl_backend import trainer
from trainers.verl_backend.actors import LOOPS_FILE
from trainers.verl_backend.settings import SECTION
from trainers.verl_backend.time_limits import ENGINE_LOST, WorkerLostError

_DEAD_ENGINE = "EngineDeadError"
"""vLLM's, which need not be installed here to be known."""
_KNOCK = 10.0
"""Seconds."""


class ClusterError(BoundaryError):
    """There is no Ray to run on."""


class TaskRunner(TaskRunnerV1.__ray_metadata__.modified_class):  # type: ignore[misc,name-defined,unused-ignore]
    """veRL's own. That this module imports our trainers is what makes their names known in its process."""

    trainers = trainer.TRAINERS


def train(config: Any) -> None:
    """Run to the end; Ray is shut down on the way out, and with it every process of the run.

    Raises:
        RubricEMError: what stopped the run, wherever it was raised.
    """
    refuse_unreachable(os.environ.get("RAY_ADDRESS", ""))
    with open_dict(config):
        config.actor_rollout_ref.rollout.agent.agent_loop_config_path = str(LOOPS_FILE)
        _make_absolute(config)
    OmegaConf.resolve(config)
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    try:
        run_ppo(config, task_runner_class=ray.remote(num_cpus=1)(TaskRunner))
    except RayError as failure:
        raise root_cause(failure) from failure
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as failure:
        if ray.is_initialized():
            raise
        told = " ".join(str(failure).split()).rstrip(".")
        raise ClusterError(
            f"Ray does not take the run: {told}. Its own settings are those under ray_kwargs.ray_init, and its logs are "
            "under /tmp/ray/session_latest/logs."
        ) from failure
    finally:
        ray.shutdown()


def refuse_unreachable(address: str) -> None:
    """Knock at a cluster's door: Ray itself waits for minutes where nobody opens.

    Raises:
        ClusterError: an address of the form host:port at which nobody listens.
    """
    host, _, port = address.rpartition(":")
    if "/" in address or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK).close()
    except OSError as cause:
        raise ClusterError(
            f"nobody listens at RAY_ADDRESS={address} ({cause}). Start Ray there (`ray start --head --port={port}`), or "
            "unset the variable for one of its own on this machine."
        ) from cause


def _make_absolute(config: Any) -> None:
    """Other nodes read these too, each from a working directory of its own; a model that is no folder is a name."""
    trainer, model, section = config.trainer, config.actor_rollout_ref.model, config[SECTION]
    trainer.default_local_dir = str(Path(trainer.default_local_dir).absolute())
    if Path(model.path).is_dir():
        model.path = str(Path(model.path).absolute())
    if section.get("questions"):
        section.questions = str(Path(section.questions).absolute())


def root_cause(failure: BaseException) -> BaseException:
    """Our own error under Ray's wrappings, or the death of a process; the failure itself where it is neither."""
    inner: BaseException | None = failure
    while inner is not None:
        if isinstance(inner, RubricEMError) and not isinstance(inner, RayError):
            return inner
        if isinstance(inner, RayActorError) and not isinstance(inner, RayTaskError):
            return WorkerLostError.of(str(inner))
        if type(inner).__name__ == _DEAD_ENGINE:
            return WorkerLostError.of(ENGINE_LOST)
        inner = getattr(inner, "cause", None) or inner.__cause__
    return failure
