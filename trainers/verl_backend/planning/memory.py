"""The memory of a GPU while the policy samples and while it trains, and what the host holds meanwhile.

Both take turns on the same GPUs: the engine gives its memory back while training, and training moves what it may to
the host while sampling. Estimates in GiB from the shapes; see `Assumptions` for what shapes do not tell.
"""

from typing import NamedTuple

from rubricem_env.domain.errors import ConfigError
from trainers.verl_backend.planning.assumptions import Assumptions
from trainers.verl_backend.planning.model_shape import ModelShape
from trainers.verl_backend.planning.run_shape import RunShape

GIB = 2**30
_WEIGHT, _GRADIENT, _MOMENTS = 4, 4, 8
"""Bytes of a parameter in training: weights and gradients in float32, two moments of Adam."""
_HALF = 2
"""Bytes of a number in bfloat16."""


class Part(NamedTuple):
    """One thing that takes memory."""

    what: str
    gib: float


class MemoryPlan(NamedTuple):
    """Of each GPU and each node."""

    gpu_gib: float
    training: tuple[Part, ...]
    sampling: tuple[Part, ...]
    host_gib: float
    """Of a node, for what is off the GPUs."""
    checkpoint_gib: float
    """On disk, of one checkpoint: weights and moments."""
    cached_tokens: int
    """Tokens whose keys and values one engine holds."""
    longest: int
    """Sequences of the greatest length that one engine holds."""

    @property
    def training_gib(self) -> float:
        return sum(part.gib for part in self.training)

    @property
    def sampling_gib(self) -> float:
        return sum(part.gib for part in self.sampling)


def plan_memory(shape: RunShape, model: ModelShape, assumed: Assumptions) -> MemoryPlan:
    """What a GPU has to hold."""
    engine = _engine_parts(shape, model, assumed)
    cached_tokens = int(engine[-1].gib * GIB * shape.tensor_parallel / model.cache_bytes)
    sharded = model.parameters / shape.gpus / GIB
    kept = 0.0 if shape.computes_on_host or shape.offloads_weights else _WEIGHT * sharded
    kept += 0.0 if shape.computes_on_host or shape.offloads_moments else _MOMENTS * sharded
    on_host = 0.0 if not (shape.computes_on_host or shape.offloads_weights) else _WEIGHT + _GRADIENT
    on_host += 0.0 if not (shape.computes_on_host or shape.offloads_moments) else _MOMENTS
    return MemoryPlan(
        gpu_gib=assumed.gpu_gib,
        training=_training_parts(shape, model, assumed),
        sampling=(*engine, Part("weights and moments of training", kept), Part("reserve", assumed.reserve_gib)),
        host_gib=(on_host + _WEIGHT) * sharded * shape.gpus_per_node,  # the frozen reference is always there
        checkpoint_gib=(_WEIGHT + _MOMENTS) * model.parameters / GIB,
        cached_tokens=cached_tokens,
        longest=cached_tokens // shape.total_tokens,
    )


def _training_parts(shape: RunShape, model: ModelShape, assumed: Assumptions) -> tuple[Part, ...]:
    sharded = 0.0 if shape.computes_on_host else model.parameters / shape.gpus / GIB
    layer, tokens = model.layer_parameters / GIB, shape.tokens_per_gpu / GIB
    # FSDP gathers a layer while it computes another; the embeddings stay gathered from the first to the last.
    gathered = _HALF * (2 * layer + model.embedding_parameters / GIB)
    one_layer = (6 * model.hidden + 3 * model.heads * model.head_size) * _HALF
    one_layer += (4 * model.kv_heads * model.head_size + 4 * model.mlp) * _HALF
    inputs = model.hidden * _HALF * model.layers
    return (
        Part("weights, sharded", _WEIGHT * sharded),
        Part("gradients, sharded", _GRADIENT * sharded),
        Part("optimiser's moments, sharded", _MOMENTS * sharded),
        Part("gathered weights and one layer's gradients", gathered + (_HALF + _GRADIENT) * layer),
        Part("activations", tokens * (inputs + one_layer if shape.recomputes else one_layer * model.layers)),
        Part("logits", tokens * model.vocabulary * assumed.logit_bytes),
        Part("reserve", assumed.reserve_gib),
    )


def _engine_parts(shape: RunShape, model: ModelShape, assumed: Assumptions) -> tuple[Part, ...]:
    weights = _HALF * model.parameters / shape.tensor_parallel / GIB
    cache = max(0.0, shape.engine_share * assumed.gpu_gib - weights - assumed.engine_overhead_gib)
    return (
        Part("engine's weights", weights),
        Part("engine's graphs and activations", assumed.engine_overhead_gib),
        Part("cache of keys and values", cache),
    )


def refuse_small_gpu(plan: MemoryPlan, shape: RunShape) -> None:
    """Refuse a run that cannot fit.

    Raises:
        ConfigError: training or sampling needs more than a GPU has, or the cache holds not one whole sequence.
    """
    for doing, needed in (("training", plan.training_gib), ("sampling", plan.sampling_gib)):
        if needed > plan.gpu_gib:
            largest = max(plan.training if doing == "training" else plan.sampling, key=lambda part: part.gib)
            raise ConfigError(
                f"a GPU of {plan.gpu_gib:.0f} GiB is too small: {doing} needs {needed:.0f} GiB on each of "
                f"{shape.gpus}, {largest.gib:.0f} of them for {largest.what}. {_ways_out(doing)}"
            )
    if plan.longest < 1:
        raise ConfigError(
            f"a GPU of {plan.gpu_gib:.0f} GiB is too small: the engine's cache holds {plan.cached_tokens} tokens and "
            f"the longest sequence has {shape.total_tokens}. {_ways_out('sampling')}"
        )


def _ways_out(doing: str) -> str:
    if doing == "training":
        return (
            "Take more nodes (trainer.nnodes), share a sequence among more GPUs "
            "(actor_rollout_ref.actor.ulysses_sequence_parallel_size, with ppo_max_token_len_per_gpu lowered alike), or "
            "compute the optimiser on the host (actor_rollout_ref.actor.fsdp_config.offload_policy=true)."
        )
    return (
        "Change the engine's share (actor_rollout_ref.rollout.gpu_memory_utilization), spread it over more GPUs "
        "(actor_rollout_ref.rollout.tensor_model_parallel_size), or offload training (fsdp_config.param_offload and "
        "optimizer_offload)."
    )
