"""What a mode of the trainer cannot do, told before Ray is started: veRL finds it out after a minute, or never."""

from typing import Any

from rubricem_agent.config.tools import ToolsConfig
from rubricem_env.domain.errors import ConfigError
from trainers.verl_backend.settings import VerlSettings

ASYNC = "rubricem_async"
SYNC = "rubricem_sync"
SEPARATE = "rubricem_separate"
RAY = "ray"
"""The transport of `ray_transport`, whose name veRL's registry has too."""
_SECTIONS = {ASYNC: "colocate_async", SEPARATE: "separate_async"}
"""Where veRL has the settings of the mode that each stands over."""


def refuse_impossible(config: Any, settings: VerlSettings) -> None:
    """Look at the mode of a composed config.

    Raises:
        ConfigError: the mode needs what the config does not give it.
    """
    mode = config.trainer.v1.trainer_mode
    if mode == SEPARATE:
        _refuse_separate(config)
    _refuse_shared_cache(config, settings.tools)
    if mode in _SECTIONS and settings.meta_policy:
        _refuse_short_window(config.trainer.v1[_SECTIONS[mode]].num_warmup_batches, settings.window, mode)


def _refuse_separate(config: Any) -> None:
    rollout, batch = config.actor_rollout_ref.rollout, config.data.train_batch_size
    mini_batch = config.actor_rollout_ref.actor.ppo_mini_batch_size
    updates = config.trainer.v1.separate_async.parameter_sync_step
    if config.trainer.device == "cpu":
        _refuse_on_cpu(rollout.checkpoint_engine.backend, updates)
    if rollout.checkpoint_engine.backend == "naive" or rollout.nnodes < 1 or rollout.n_gpus_per_node < 1:
        raise ConfigError(
            f"{SEPARATE} samples on GPUs of its own, and the config has nodes={rollout.nnodes} of "
            f"{rollout.n_gpus_per_node} for them and the transport {rollout.checkpoint_engine.backend!r}. Set nnodes, "
            "n_gpus_per_node and checkpoint_engine.backend (nccl; on a CPU ray) under actor_rollout_ref.rollout."
        )
    if batch != updates * mini_batch:
        raise ConfigError(
            f"{SEPARATE} takes trainer.v1.separate_async.parameter_sync_step={updates} updates a step, each of "
            f"actor.ppo_mini_batch_size={mini_batch} questions, and data.train_batch_size is {batch}, not their product. "
            "The paper takes one update a step: parameter_sync_step=1 and equal sizes."
        )


def _refuse_on_cpu(transport: str, updates: int) -> None:
    if transport not in ("naive", RAY):
        raise ConfigError(
            f"{SEPARATE} on a CPU takes no transport but {RAY!r}, and the config has {transport!r}, which goes from "
            f"GPU to GPU. Set actor_rollout_ref.rollout.checkpoint_engine.backend={RAY}."
        )
    if updates != 1:
        raise ConfigError(
            f"{SEPARATE} on a CPU takes one update a step, and trainer.v1.separate_async.parameter_sync_step is "
            f"{updates}: veRL keeps the weights of before by copying them off the device, and on a CPU that copies "
            "nothing. Set it to 1."
        )


def _refuse_shared_cache(config: Any, tools: ToolsConfig) -> None:
    """Rollout workers are spread over the nodes, and SQLite's files cannot be shared between machines."""
    if config.trainer.nnodes > 1 and tools.remote is None and tools.cache.enabled and tools.cache.path is not None:
        raise ConfigError(
            f"rubricem.tools.cache.path={tools.cache.path} is a SQLite file, and workers on {config.trainer.nnodes} "
            "nodes would write to it. Let `rubricem tools serve` keep the cache and name it in "
            "rubricem.tools.remote.url, or leave the path away for a cache in each worker's memory."
        )


def _refuse_short_window(ahead: float, window: int, mode: str) -> None:
    """A repeat is played `ahead` steps before its turn, and its question's reflection is a step late."""
    if window <= ahead:
        raise ConfigError(
            f"rubricem.window is {window} and num_warmup_batches {ahead:g}: a question would be repeated before it has "
            f"been reflected on, without its lesson. Set rubricem.window to at least {int(ahead) + 1}, or "
            f"trainer.v1.{_SECTIONS[mode]}.num_warmup_batches lower."
        )
