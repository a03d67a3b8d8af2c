"""Configs that cannot work are refused before Ray is started: veRL finds it out after a minute, hours, or never.

Each rule is one sentence with the key, its value, the reason and the way out. A rule reads the config by its keys,
composed by Hydra or from its file alone.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rubricem_env.domain.errors import ConfigError

from .planning.run_shape import Config, value_at
from .settings import VerlSettings
from .verl_names import ASYNC, ENGINE, ESTIMATOR, RAY, SEPARATE

ENGINES = ("vllm", ENGINE)
STRATEGY = "fsdp2"
"""Of sharding: checkpoints of the others are not divided among another number of ranks."""
SECTIONS = {ASYNC: "colocate_async", SEPARATE: "separate_async"}
"""The section of veRL's mode below each of ours."""
MOST_REQUESTS = 1_000
"""Of one replica at a time: above it, pausing a vLLM server for new weights never returns (verl-project/verl#7990)."""
_BY_ROLLOUT = ("token-mean", "token-sum", "seq-mean-token-sum")
"""Aggregations of the loss that are right for rollouts of several rows."""
Reader = Callable[[str, Any], Any]
"""The value of a key, or veRL's own where the file leaves it out."""
_ACTOR, _ROLLOUT, _MODE = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "trainer.v1.trainer_mode"
_CORRECTION, _UPDATES = "algorithm.rollout_correction", "trainer.v1.separate_async.parameter_sync_step"


def complete_config(config: Any, settings: VerlSettings) -> None:
    """Write `ahead` and `max_age` into veRL's own keys of a composed config, and refuse one that cannot work."""
    section = SECTIONS.get(config.trainer.v1.trainer_mode)
    if section and settings.ahead is not None:
        config.trainer.v1[section].num_warmup_batches = settings.ahead
    oldest = settings.max_age or 2 * math.ceil(steps_ahead(partial(value_at, config), settings)) + 2
    config.trainer.v1.sampler.max_off_policy_strategy = "drop"
    # veRL counts a group's updates from 1.
    config.trainer.v1.sampler.max_off_policy_threshold = 1 + oldest
    refuse_unfit(config, settings)


def refuse_unfit(config: Config, settings: VerlSettings) -> None:
    """Raise ConfigError with the first rule that the config breaks."""
    for rules in RULES:
        for sentence in rules(partial(value_at, config), settings):
            raise ConfigError(sentence)


def steps_ahead(read: Reader, settings: VerlSettings) -> float:
    """Steps whose questions are sampled before their turn."""
    section = SECTIONS.get(read(_MODE, "sync"))
    if section is None:
        return 0.0
    return float(read(f"trainer.v1.{section}.num_warmup_batches", 1) if settings.ahead is None else settings.ahead)


def _unsupported(read: Reader, settings: VerlSettings) -> Iterator[str]:
    """Options of veRL whose code ours replaces, and what lacks something that we need."""
    options = {
        "trainer.val_before_train": read("trainer.val_before_train", True),
        "trainer.test_freq": read("trainer.test_freq", -1) > 0,
        "algorithm.use_kl_in_reward": read("algorithm.use_kl_in_reward", False),
        "algorithm.filter_groups.enable": read("algorithm.filter_groups.enable", False),
    }
    for name in (name for name, is_set in options.items() if is_set):
        yield (
            f"{name} is set, and the trainer {read(_MODE, 'sync')} does not support it: credit comes from the "
            "judge service, and checkpoints are evaluated with `rubricem eval`. Remove the key."
        )
    if (estimator := read("algorithm.adv_estimator", "gae")) != ESTIMATOR:
        yield (
            f"algorithm.adv_estimator is {estimator}, and rollouts arrive with their advantages. Set it to "
            f"{ESTIMATOR}, and choose the credit method with rubricem.credit."
        )
    warms_up = read(f"{_ACTOR}.optim.lr_warmup_steps", -1) > 0 or read(f"{_ACTOR}.optim.lr_warmup_steps_ratio", 0.0) > 0
    if warms_up or read(f"{_ACTOR}.optim.lr_scheduler_type", "constant") != "constant":
        yield (
            f"{_ACTOR}.optim has a learning rate that changes, and a step takes two updates, each of which moves "
            "veRL's schedule. Set lr_scheduler_type=constant and no warm-up, as in the paper."
        )
    if read(f"{_ACTOR}.use_prefix_grouper", False):
        yield f"{_ACTOR}.use_prefix_grouper is set, and no engine of veRL 0.9.1 reads it. Remove the key."
    if (engine := read(f"{_ROLLOUT}.name", None)) not in ENGINES:
        yield (
            f"{_ROLLOUT}.name is {engine}: a turn ends at a tag that must stay in the text, and veRL does not "
            f"translate that parameter (include_stop_str_in_output) for it. Set it to {' or '.join(ENGINES)}."
        )
    if (strategy := read(f"{_ACTOR}.strategy", "fsdp")) != STRATEGY:
        yield f"{_ACTOR}.strategy is {strategy}, which was never run with two updates a step. Set it to {STRATEGY}."


def _correction(read: Reader, settings: VerlSettings) -> Iterator[str]:
    corrects = any(read(f"{_CORRECTION}.{name}", None) is not None for name in ("rollout_is", "rollout_rs"))
    bypasses = read(f"{_CORRECTION}.bypass_mode", False)
    if bypasses and (corrects or read(f"{_CORRECTION}.loss_type", "ppo_clip") != "ppo_clip"):
        yield (
            f"{_CORRECTION}.bypass_mode takes the sampled log-probabilities for the policy's, so that the clipped "
            "ratio is the correction; veRL's trainer applies no other in it. Set rollout_is and rollout_rs to null and "
            "loss_type to ppo_clip, or bypass_mode to false."
        )
    if (corrects or bypasses) and not read(f"{_ROLLOUT}.calculate_log_probs", True):
        yield (
            f"{_CORRECTION} compares with the sampled log-probabilities, and {_ROLLOUT}.calculate_log_probs is false. "
            "Set it to true."
        )


def _folding(read: Reader, settings: VerlSettings) -> Iterator[str]:
    """What veRL computes in each row by itself, and is of a whole rollout: a folded one has several rows."""
    if settings.context.fold_at is None:
        return
    by_row = {
        f"{_ACTOR}.loss_agg_mode": (_BY_ROLLOUT, read(f"{_ACTOR}.loss_agg_mode", "token-mean")),
        f"{_CORRECTION}.rollout_is": (("token",), read(f"{_CORRECTION}.rollout_is", "token")),
        f"{_ACTOR}.policy_loss.loss_mode": (("vanilla",), read(f"{_ACTOR}.policy_loss.loss_mode", "vanilla")),
    }
    for key, (known, value) in by_row.items():
        if value not in known:
            yield (
                f"{key} is {value}, and rubricem.context folds rollouts into several rows, of each of which veRL would "
                f"make a sequence. Set it to {' or '.join(known)}, or leave rubricem.context out."
            )
    if any(not kind.startswith("token") for kind in (read(f"{_CORRECTION}.rollout_rs", None) or "token").split(",")):
        yield (
            f"{_CORRECTION}.rollout_rs rejects whole sequences, and rubricem.context folds rollouts into several rows, "
            "of each of which veRL would make one. Set it to token_k3 or null, or leave rubricem.context out."
        )


def _separate(read: Reader, settings: VerlSettings) -> Iterator[str]:
    if read(_MODE, "sync") != SEPARATE:
        return
    updates, batch = read(_UPDATES, 4), read("data.train_batch_size", 1_024)
    mini_batch, on_cpu = read(f"{_ACTOR}.ppo_mini_batch_size", 256), read("trainer.device", "cuda") == "cpu"
    transport = read(f"{_ROLLOUT}.checkpoint_engine.backend", "naive")
    nodes, gpus = read(f"{_ROLLOUT}.nnodes", 0), read(f"{_ROLLOUT}.n_gpus_per_node", 8)
    if on_cpu and transport not in ("naive", RAY):
        yield (
            f"{SEPARATE} on a CPU takes no transport but {RAY!r}, and the config has {transport!r}, which goes from "
            f"GPU to GPU. Set {_ROLLOUT}.checkpoint_engine.backend={RAY}."
        )
    if transport == "naive" or min(nodes, gpus) < 1:
        yield (
            f"{SEPARATE} samples on GPUs of its own, and the config has nodes={nodes} of {gpus} for them and the "
            f"transport {transport!r}. Set nnodes, n_gpus_per_node and checkpoint_engine.backend (nccl; on a CPU ray) "
            f"under {_ROLLOUT}."
        )
    if updates > 1 and (on_cpu or read(f"{_ACTOR}.fsdp_config.param_offload", False)):
        yield (
            f"{SEPARATE} with {_UPDATES}={updates} restores earlier weights from a copy in the host's memory, and "
            "weights that are there already are not copied, so that training would change nothing. Set it to 1, or on "
            f"GPUs {_ACTOR}.fsdp_config.param_offload=false."
        )
    if batch != updates * mini_batch:
        yield (
            f"{SEPARATE} takes {_UPDATES}={updates} updates a step, each of actor.ppo_mini_batch_size={mini_batch} "
            f"questions, and data.train_batch_size is {batch}, not their product. The paper takes one update a step: "
            "parameter_sync_step=1 and equal sizes."
        )


def _requests(read: Reader, settings: VerlSettings) -> Iterator[str]:
    questions = read("data.train_batch_size", 1_024)
    requests = (1 + steps_ahead(read, settings)) * questions * read(f"{_ROLLOUT}.n", 1)
    requests += questions * settings.reflection.num_candidates * settings.meta_policy
    where, nodes = (_ROLLOUT, 0) if read(_MODE, "sync") == SEPARATE else ("trainer", 1)
    gpus = read(f"{where}.nnodes", nodes) * read(f"{where}.n_gpus_per_node", 8)
    engines = max(1, gpus // read(f"{_ROLLOUT}.tensor_model_parallel_size", 2))
    if read(f"{_ROLLOUT}.name", None) == "vllm" and requests > MOST_REQUESTS * engines:
        yield (
            f"{requests:g} requests run at once on {engines} engines, and a vLLM server with more than "
            f"{MOST_REQUESTS} never pauses for new weights (verl-project/verl#7990). Take more GPUs, fewer questions a "
            "step (data.train_batch_size), or sample fewer steps ahead."
        )


def _asynchrony(read: Reader, settings: VerlSettings) -> Iterator[str]:
    """A repeat is sampled some steps early, and its question's reflection is a step late."""
    ahead = steps_ahead(read, settings)
    repeats = settings.meta_policy and settings.repeats
    if read(_MODE, "sync") in SECTIONS and repeats and settings.window <= ahead:
        yield (
            f"rubricem.window is {settings.window}, and {ahead:g} steps are sampled ahead: a question would be "
            f"repeated before it has been reflected on, without its lesson. Set rubricem.window to at least "
            f"{int(ahead) + 1}, or lower rubricem.ahead."
        )
    if settings.max_age is not None and settings.max_age < ahead:
        yield (
            f"rubricem.max_age is {settings.max_age}, and {ahead:g} steps are sampled ahead: every group would be too "
            f"old. Set it to at least {math.ceil(ahead)}, or lower rubricem.ahead."
        )


RULES = (_unsupported, _correction, _folding, _separate, _requests, _asynchrony)
