"""Configs that cannot work are refused before Ray is started: veRL finds it out after a minute, hours, or never.

Each rule is one sentence with the key, its value, the reason and the way out. It reads the composed config alone.
"""

import math
from collections.abc import Iterator
from typing import Any

from rubricem_env.domain.errors import ConfigError

from .settings import ASYNC, ESTIMATOR, RAY, SEPARATE, VerlSettings

ENGINES = ("vllm", "transformers")
STRATEGIES = ("fsdp", "fsdp2")
SECTIONS = {ASYNC: "colocate_async", SEPARATE: "separate_async"}
"""The section of veRL's mode below each of ours."""
MOST_REQUESTS = 1_000
"""Of one replica at a time: above it, pausing a vLLM server for new weights never returns (verl-project/verl#7990)."""


def complete_config(config: Any, settings: VerlSettings) -> None:
    """Write `ahead` and `max_age` into veRL's own keys; raise ConfigError with the first rule that the config breaks."""
    section = SECTIONS.get(config.trainer.v1.trainer_mode)
    if section and settings.ahead is not None:
        config.trainer.v1[section].num_warmup_batches = settings.ahead
    sampler = config.trainer.v1.sampler
    sampler.max_off_policy_strategy = "drop"
    # veRL counts a group's updates from 1.
    sampler.max_off_policy_threshold = 1 + (settings.max_age or 2 * math.ceil(steps_ahead(config)) + 2)
    for rules in (_unsupported, _correction, _separate, _requests, _asynchrony):
        for sentence in rules(config, settings):
            raise ConfigError(sentence)


def _unsupported(config: Any, settings: VerlSettings) -> Iterator[str]:
    """Options of veRL whose code ours replaces, and what lacks something that we need."""
    algorithm, trainer = config.algorithm, config.trainer
    actor, engine = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout.name
    options = {
        "trainer.val_before_train": trainer.val_before_train,
        "trainer.test_freq": trainer.test_freq > 0,
        "algorithm.use_kl_in_reward": algorithm.use_kl_in_reward,
        "algorithm.filter_groups.enable": algorithm.filter_groups.enable,
    }
    for name in (name for name, is_set in options.items() if is_set):
        yield (
            f"{name} is set, and the trainer {trainer.v1.trainer_mode} does not support it: credit comes from the judge "
            "service, and checkpoints are evaluated with `rubricem eval`. Remove the key."
        )
    if algorithm.adv_estimator not in (ESTIMATOR, "grpo"):
        yield (
            f"algorithm.adv_estimator is {algorithm.adv_estimator}, and rollouts arrive with their advantages. Set it to "
            f"{ESTIMATOR}, and choose the credit method with rubricem.credit."
        )
    warm_up = (actor.optim.get(name, 0) or 0 for name in ("lr_warmup_steps", "lr_warmup_steps_ratio"))
    if actor.optim.get("lr_scheduler_type", "constant") != "constant" or max(warm_up) > 0:
        yield (
            "actor_rollout_ref.actor.optim has a learning rate that changes, and a step takes two updates, each of which "
            "moves veRL's schedule. Set lr_scheduler_type=constant and no warm-up, as in the paper."
        )
    if actor.use_prefix_grouper:
        yield "actor_rollout_ref.actor.use_prefix_grouper is set, and no engine of veRL 0.9.1 reads it. Remove the key."
    if engine not in ENGINES:
        yield (
            f"actor_rollout_ref.rollout.name is {engine}: a turn ends at a tag that must stay in the text, and veRL "
            f"does not translate that parameter (include_stop_str_in_output) for it. Set it to {' or '.join(ENGINES)}."
        )
    if actor.strategy not in STRATEGIES:
        yield (
            f"actor_rollout_ref.actor.strategy is {actor.strategy}, which was never run with two updates a step. Set it "
            f"to {' or '.join(STRATEGIES)}."
        )


def _correction(config: Any, settings: VerlSettings) -> Iterator[str]:
    correction = config.algorithm.rollout_correction
    corrects = correction.rollout_is is not None or correction.rollout_rs is not None
    if correction.bypass_mode and (corrects or correction.loss_type != "ppo_clip"):
        yield (
            "algorithm.rollout_correction.bypass_mode takes the sampled log-probabilities for the policy's, so that the "
            "clipped ratio is the correction; veRL's trainer applies no other in it. Set rollout_is and rollout_rs to "
            "null and loss_type to ppo_clip, or bypass_mode to false."
        )
    if (corrects or correction.bypass_mode) and not config.actor_rollout_ref.rollout.calculate_log_probs:
        yield (
            "algorithm.rollout_correction compares with the sampled log-probabilities, and "
            "actor_rollout_ref.rollout.calculate_log_probs is false. Set it to true."
        )


def _separate(config: Any, settings: VerlSettings) -> Iterator[str]:
    if config.trainer.v1.trainer_mode != SEPARATE:
        return
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    updates, batch = config.trainer.v1.separate_async.parameter_sync_step, config.data.train_batch_size
    transport = rollout.checkpoint_engine.backend
    if config.trainer.device == "cpu" and transport not in ("naive", RAY):
        yield (
            f"{SEPARATE} on a CPU takes no transport but {RAY!r}, and the config has {transport!r}, which goes from "
            f"GPU to GPU. Set actor_rollout_ref.rollout.checkpoint_engine.backend={RAY}."
        )
    if transport == "naive" or rollout.nnodes < 1 or rollout.n_gpus_per_node < 1:
        yield (
            f"{SEPARATE} samples on GPUs of its own, and the config has nodes={rollout.nnodes} of "
            f"{rollout.n_gpus_per_node} for them and the transport {transport!r}. Set nnodes, n_gpus_per_node and "
            "checkpoint_engine.backend (nccl; on a CPU ray) under actor_rollout_ref.rollout."
        )
    if updates > 1 and (config.trainer.device == "cpu" or actor.fsdp_config.param_offload):
        yield (
            f"{SEPARATE} with trainer.v1.separate_async.parameter_sync_step={updates} restores earlier weights from a "
            "copy in the host's memory, and weights that are there already are not copied, so that training would change "
            "nothing. Set it to 1, or on GPUs actor_rollout_ref.actor.fsdp_config.param_offload=false."
        )
    if batch != updates * actor.ppo_mini_batch_size:
        yield (
            f"{SEPARATE} takes trainer.v1.separate_async.parameter_sync_step={updates} updates a step, each of "
            f"actor.ppo_mini_batch_size={actor.ppo_mini_batch_size} questions, and data.train_batch_size is {batch}, not "
            "their product. The paper takes one update a step: parameter_sync_step=1 and equal sizes."
        )


def _requests(config: Any, settings: VerlSettings) -> Iterator[str]:
    rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
    requests = (1 + steps_ahead(config)) * config.data.train_batch_size * rollout.n
    if settings.meta_policy:
        requests += config.data.train_batch_size * settings.reflection.num_candidates
    gpus = rollout if trainer.v1.trainer_mode == SEPARATE else trainer
    replicas = max(1, gpus.nnodes * gpus.n_gpus_per_node // rollout.tensor_model_parallel_size)
    if rollout.name == "vllm" and requests > MOST_REQUESTS * replicas:
        yield (
            f"{requests:g} requests run at once on {replicas} engines, and a vLLM server with more than {MOST_REQUESTS} "
            "never pauses for new weights (verl-project/verl#7990). Take more GPUs, fewer questions a step "
            "(data.train_batch_size), or sample fewer steps ahead."
        )


def _asynchrony(config: Any, settings: VerlSettings) -> Iterator[str]:
    """A repeat is sampled some steps early, and its question's reflection is a step late."""
    ahead, mode = steps_ahead(config), config.trainer.v1.trainer_mode
    if mode in SECTIONS and settings.meta_policy and settings.window <= ahead:
        yield (
            f"rubricem.window is {settings.window}, and {ahead:g} steps are sampled ahead: a question would be repeated "
            f"before it has been reflected on, without its lesson. Set rubricem.window to at least {int(ahead) + 1}, or "
            "lower rubricem.ahead."
        )
    if settings.max_age is not None and settings.max_age < ahead:
        yield (
            f"rubricem.max_age is {settings.max_age}, and {ahead:g} steps are sampled ahead: every group would be too old. "
            f"Set it to at least {math.ceil(ahead)}, or lower rubricem.ahead."
        )


def steps_ahead(config: Any) -> float:
    """Steps whose questions are sampled before their turn."""
    section = SECTIONS.get(config.trainer.v1.trainer_mode)
    return float(config.trainer.v1[section].num_warmup_batches) if section else 0.0
