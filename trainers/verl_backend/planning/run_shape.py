"""What a plan has to know of a run, taken out of its config."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory_json import first_problem
from trainers.verl_backend.planning.run_file import Config, value_at
from trainers.verl_backend.settings import SECTION, VerlSettings, read_section

Layout = Literal["sync", "async", "separate"]
"""sync: sampling and training take turns, a step at a time. async: they take turns, and the next step's questions are
sampled while this step's are judged. separate: half of the GPUs sample, half train, at the same time."""

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_KEYS: dict[str, tuple[str, Any]] = {
    "model": ("actor_rollout_ref.model.path", ""),
    "device": ("trainer.device", "cuda"),
    "mode": ("trainer.v1.trainer_mode", "sync"),
    "ahead": ("trainer.v1.colocate_async.num_warmup_batches", 1),
    "nodes": ("trainer.nnodes", 1),
    "gpus_per_node": ("trainer.n_gpus_per_node", 8),
    "questions": ("data.train_batch_size", 1_024),
    "group_size": (f"{_ROLLOUT}.n", 1),
    "prompt_tokens": ("data.max_prompt_length", 512),
    "response_tokens": ("data.max_response_length", 512),
    "steps": ("trainer.total_training_steps", None),
    "folder": ("trainer.default_local_dir", "checkpoints"),
    "kept_checkpoints": ("trainer.max_actor_ckpt_to_keep", None),
    "save_every": ("trainer.save_freq", -1),
    "sequence_parallel": (f"{_ACTOR}.ulysses_sequence_parallel_size", 1),
    "tokens_per_gpu": (f"{_ACTOR}.ppo_max_token_len_per_gpu", 16_384),
    "offloads_weights": (f"{_ACTOR}.fsdp_config.param_offload", False),
    "offloads_moments": (f"{_ACTOR}.fsdp_config.optimizer_offload", False),
    "computes_on_host": (f"{_ACTOR}.fsdp_config.offload_policy", False),
    "packs": ("actor_rollout_ref.model.use_remove_padding", True),
    "recomputes": ("actor_rollout_ref.model.enable_gradient_checkpointing", True),
    "engine": (f"{_ROLLOUT}.name", ""),
    "transport": (f"{_ROLLOUT}.checkpoint_engine.backend", "naive"),
    "engine_share": (f"{_ROLLOUT}.gpu_memory_utilization", 0.5),
    "tensor_parallel": (f"{_ROLLOUT}.tensor_model_parallel_size", 2),
    "engine_seats": (f"{_ROLLOUT}.max_num_seqs", 256),
}
"""The key of each number in veRL's config, and veRL's own default."""


class RunShape(Frozen):
    """How large a run is and how it is spread over GPUs."""

    model: str
    device: str
    mode: str
    ahead: Annotated[float, Field(ge=0)]
    """Steps whose questions are sampled before their turn, in the asynchronous mode."""
    nodes: Count
    gpus_per_node: Count
    questions: Count
    """Of a step."""
    group_size: Count
    prompt_tokens: Count
    response_tokens: Count
    steps: Count
    folder: Path
    kept_checkpoints: Count | None
    """None keeps all."""
    save_every: int
    """Steps; below 1 saves none."""
    sequence_parallel: Count
    """GPUs that share one sequence while training."""
    tokens_per_gpu: Count
    """Of one pass while training."""
    offloads_weights: bool
    offloads_moments: bool
    computes_on_host: bool
    """FSDP2's own offloading: weights, gradients and moments live in the host's memory, where the optimiser runs."""
    packs: bool
    """Sequences of a pass stand in one row without padding, which needs flash attention."""
    recomputes: bool
    """Gradient checkpointing."""
    engine: str
    transport: str
    """Of weights to engines with GPUs of their own."""
    engine_share: Share
    """Of a GPU's memory, for the sampling engine while it samples."""
    tensor_parallel: Count
    engine_seats: Count
    """Sequences that one engine serves at once, at most."""
    settings: VerlSettings

    @property
    def layout(self) -> Layout:
        """How sampling and training share the GPUs."""
        if "separate" in self.mode:
            return "separate"
        return "async" if "async" in self.mode and self.ahead > 0 else "sync"

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def attempts(self) -> int:
        """Of a step."""
        return self.questions * self.group_size

    @property
    def total_tokens(self) -> int:
        """Of the longest sequence."""
        return self.prompt_tokens + self.response_tokens


def read_run_shape(config: Config) -> RunShape:
    """The shape of a run from its config, composed by Hydra or read from its file.

    Raises:
        ConfigError: a value is missing, of the wrong kind or out of range, or two of them contradict each other.
    """
    settings = read_section(config.get(SECTION))
    values = {name: value_at(config, key, default) for name, (key, default) in _KEYS.items()}
    try:
        # Not strict: YAML has strings for paths and whole numbers for floats.
        shape = RunShape.model_validate({**values, "settings": settings}, strict=False)
    except ValidationError as cause:
        name = str(cause.errors()[0]["loc"][0])
        raise ConfigError(f"the config's {_KEYS[name][0]} is refused {first_problem(cause)}") from cause
    _check(shape)
    return shape


def _check(shape: RunShape) -> None:
    if shape.gpus % shape.sequence_parallel or shape.gpus % shape.tensor_parallel:
        raise ConfigError(
            f"{shape.gpus} GPUs cannot be shared out in {shape.sequence_parallel} per sequence "
            f"({_KEYS['sequence_parallel'][0]}) and {shape.tensor_parallel} per engine "
            f"({_KEYS['tensor_parallel'][0]}); both must divide their number."
        )
    room = shape.tokens_per_gpu * shape.sequence_parallel
    if room < shape.total_tokens:
        raise ConfigError(
            f"the longest sequence has {shape.total_tokens} tokens, and {_KEYS['tokens_per_gpu'][0]} "
            f"{shape.tokens_per_gpu} on {shape.sequence_parallel} GPUs holds {room}. Raise it to "
            f"{-(-shape.total_tokens // shape.sequence_parallel)}, or share a sequence among more GPUs."
        )
    if shape.settings.limits.max_tokens > shape.response_tokens:
        raise ConfigError(
            f"rubricem.limits.max_tokens is {shape.settings.limits.max_tokens} and data.max_response_length "
            f"{shape.response_tokens}; an episode must fit into the response. Lower the one or raise the other."
        )
