"""What a plan needs to know of a run: the shape of its model, its sizes from the config, and the assumptions.

The YAML file is read without Hydra, so that a plan or a preflight works where nothing is installed. Only the file
itself is seen, and veRL's own defaults for the few keys that it leaves out.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import Field, ValidationError

from rubricem_agent.config.sections import read_mapping
from rubricem_agent.policy.base import model_folder
from rubricem_agent.yaml_config import parse_yaml_assignment, read_yaml
from rubricem_env.domain.base import Frozen, PositiveCount
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.inputs import first_problem, nearest_name

from ..settings import SECTION, VerlSettings, read_section

Config = Mapping[str, Any]
Numbers = TypeVar("Numbers", bound=Frozen)
_TYPING_MISTAKE = 0.9
"""The similarity from which a key that the file lacks counts as a misspelling of one that it has."""


def read_run_file(path: Path, changes: Iterable[str] = ()) -> Config:
    """The file with `a.b.c=value` changes on top, as Hydra would make them; `+` and `++` before a key add, `~` removes.

    A key that the file lacks may be in a section of veRL, which only veRL knows; a misspelt key of the file is refused.

    Raises:
        ConfigError: the file or a change cannot be read, or a change's key is mistyped.
    """
    config = read_yaml(path, offers="verl_*")
    for change in changes:
        removes, written = change.startswith("~"), change.lstrip("+~")
        key, value = parse_yaml_assignment(f"{written}=" if removes else written, example="trainer.nnodes=2")
        *path_to_it, last = key.split(".")
        section = config
        for part in path_to_it:
            if not isinstance(section.get(part), dict):
                section[part] = {}
            section = section[part]
        near = None if last in section else nearest_name(last, section, cutoff=_TYPING_MISTAKE)
        if (near or (last not in section and not path_to_it)) and not change.startswith(("+", "~")):
            meant = f"did you mean {'.'.join((*path_to_it, near))!r}?" if near else "give its section: trainer.nnodes."
            raise ConfigError(f"{change!r} changes no key of the file; {meant}")
        section[last] = value
        if removes:
            del section[last]
    return config


def value_at(config: Config, key: str, default: Any) -> Any:
    """The value of a dotted key; the default where a section or the value is missing or null."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return default if value is None else value


_KEYS = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)
"""As a Hugging Face config.json names the numbers of a `ModelShape`, in its order."""


class ModelShape(NamedTuple):
    """A decoder with grouped-query attention and a gated MLP."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    mlp: int
    vocabulary: int
    head_size: int = 128
    is_tied: bool = False
    """Whether input and output embeddings are one matrix."""
    positions: int = 0
    """The tokens of the longest text; 0 where it is not known."""

    @property
    def layer_parameters(self) -> int:
        """Four attention matrices, three of the MLP, two norms of the layer and two of query and key."""
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        attention = 2 * self.hidden * queries + 2 * self.hidden * keys
        return attention + 3 * self.hidden * self.mlp + 2 * self.hidden + 2 * self.head_size

    @property
    def embedding_parameters(self) -> int:
        return self.vocabulary * self.hidden * (1 if self.is_tied else 2)

    @property
    def parameters(self) -> int:
        return self.layers * self.layer_parameters + self.embedding_parameters + self.hidden

    @property
    def cache_bytes(self) -> int:
        """Of keys and values of one token in bfloat16."""
        return 2 * self.layers * self.kv_heads * self.head_size * 2


KNOWN = MappingProxyType(
    {
        "qwen3-0.6b": ModelShape(28, 1_024, 16, 8, 3_072, 151_936, is_tied=True),
        "qwen3-1.7b": ModelShape(28, 2_048, 16, 8, 6_144, 151_936, is_tied=True),
        "qwen3-4b": ModelShape(36, 2_560, 32, 8, 9_728, 151_936, is_tied=True),
        "qwen3-8b": ModelShape(36, 4_096, 32, 8, 12_288, 151_936),
    }
)
"""For a plan made before the model is there."""


def find_model_shape(path: str) -> ModelShape:
    """From the config.json of a folder; without one, from a known name within the path.

    Raises:
        ConfigError: there is neither, or the file is not the config of such a model.
    """
    file = model_folder(Path(path).expanduser()) / "config.json"
    if not file.is_file():
        name = path.casefold().replace("_", "-")
        known = next((shape for size, shape in KNOWN.items() if size in name), None)
        if known is None:
            raise ConfigError(
                f"the model {path!r} is not a folder with a config.json, and its name contains no known size "
                f"({', '.join(KNOWN)}). Give its folder in actor_rollout_ref.model.path."
            )
        return known
    try:
        fields: Any = json.loads(file.read_text(encoding="utf-8"))
        layers, hidden, heads, kv_heads, mlp, vocabulary = (int(fields[key]) for key in _KEYS)
        head_size, is_tied = int(fields.get("head_dim") or hidden // heads), bool(fields.get("tie_word_embeddings"))
        positions = int(fields.get("max_position_embeddings") or 0)
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as cause:
        raise ConfigError(
            f"{file} is not the config of a supported decoder: {type(cause).__name__}: {cause}. "
            f"It needs {', '.join(_KEYS)}."
        ) from cause
    return ModelShape(layers, hidden, heads, kv_heads, mlp, vocabulary, head_size, is_tied, positions)


Amount = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class Durations(Frozen):
    """How long the parts of an attempt take, in tokens or seconds, unless they are measured."""

    written_tokens: Positive = 6_500.0
    """The tokens that the policy writes in an attempt."""
    searches: Amount = 6.0
    tool_seconds: Amount = 4.0
    """The seconds of one tool call."""
    reflection_tokens: Amount = 500.0
    """The tokens of one candidate."""
    propose_seconds: Amount = 70.0
    """Of the judge: for one group, for one attempt, and for the reflections on one question."""
    score_seconds: Amount = 35.0
    reflect_seconds: Amount = 20.0
    spread: Amount = 0.5
    """Of lengths and times: the standard deviation of their logarithm; 0 makes all alike."""
    swap_seconds: Amount = 30.0
    """The engines' sleep and wake-up, and new weights to them."""


class Assumptions(Durations):
    """Numbers of one H100, one attempt, or one call. None is measured; set the ones that you measure.

    With the judge's times, proposing for all questions and then scoring all attempts, as in the paper, takes the
    paper's five minutes.
    """

    gpu_gib: Positive = 79.6
    """Memory of a GPU: an H100 of 80 GB."""
    reserve_gib: Amount = 5.0
    """What CUDA, NCCL, a sleeping engine and fragmentation take of it."""
    engine_overhead_gib: Amount = 3.0
    """What the sampling engine takes for graphs and activations, beside weights and cache."""
    train_teraflops: Positive = 297.0
    """The teraflops of bfloat16 that training reaches: 0.3 of an H100's."""
    engine_tokens: Positive = 2_000.0
    """Tokens a second that a GPU samples in all, with a model of 8 billion parameters."""
    sequence_tokens: Positive = 80.0
    """Tokens a second of one sequence, at most."""
    host_gib: Positive = 20.0
    """GiB a second between a GPU and its host, for what is offloaded; then to GPUs of its node, and of other nodes."""
    node_gib: Positive = 300.0
    network_gib: Positive = 40.0
    nics: Positive = 1.0
    """The network cards of a node, each of `network_gib`; together no faster than `node_gib`."""
    packing: Annotated[float, Field(gt=0, le=1)] = 0.85
    """The share of a micro-batch's tokens that veRL fills with rows."""
    logit_bytes: Positive = 10.0
    """Of a logit in training: in 16 bits, in 32 bits, and its gradient. Kernels that work in place take 6 or less."""
    start_tokens: Amount = 3_000.0
    """Of an attempt's prompt: instructions, question, references; then of one tool's answer."""
    observed_tokens: Amount = 800.0
    google_share: Share = 0.7
    """The share of google_search among the searches; the rest are snippet_search."""
    cached: Share = 0.0
    """Share of the searches that the tool cache answers: questions repeat, searches less often."""
    rubrics: Amount = 12.0
    """The rubrics that an attempt is scored by."""
    thought_tokens: Amount = 500.0
    """Hidden thoughts of one call to the judge, billed as output."""
    judge_read_tokens: Positive = 6_000.0
    """Tokens a second that a GPU with a judge of one's own reads, and then writes: a model of 32 billion parameters."""
    judge_written_tokens: Positive = 1_500.0
    longest_attempt: Positive = 19_400.0
    """Tokens of an attempt, without its prompt, in the longest steps: ten calls, as measured by this project."""
    gpu_hour_dollars: Amount = 2.5

    @property
    def sequence(self) -> float:
        """Tokens of an attempt in all."""
        return self.start_tokens + self.written_tokens + self.searches * self.observed_tokens

    @property
    def in_the_largest_step(self) -> "Assumptions":
        """The same with the longest attempts."""
        observed = self.searches * self.observed_tokens
        return self.model_copy(update={"written_tokens": max(self.written_tokens, self.longest_attempt - observed)})


def with_changes(numbers: Numbers, changes: Iterable[str], *, noun: str = "assumption") -> Numbers:
    """Numbers with KEY=VALUE changes; `noun` names one of them in messages.

    Raises:
        ConfigError: there is no such number, or its value is out of range.
    """
    fields = numbers.model_dump()
    given = dict(parse_yaml_assignment(change, example=f"{next(iter(fields))}=1") for change in changes)
    return read_mapping(fields | given, type(numbers), where=f"the set of {noun}s")


Layout = Literal["sync", "async", "separate"]
"""sync: sampling and training take turns, a step at a time. async: they take turns, and the next step's questions are
sampled while this step's are judged. separate: half of the GPUs sample, half train, at the same time."""

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"


class RunShape(Frozen):
    """The sizes of a run and its distribution over GPUs: each with its key in veRL's config, and veRL's own default."""

    model: Annotated[str, "actor_rollout_ref.model.path"] = ""
    device: Annotated[str, "trainer.device"] = "cuda"
    mode: Annotated[str, "trainer.v1.trainer_mode"] = "sync"
    ahead: Annotated[float, Field(ge=0), "trainer.v1.colocate_async.num_warmup_batches"] = 1
    """Steps whose questions are sampled before their turn, in the asynchronous mode."""
    nodes: Annotated[PositiveCount, "trainer.nnodes"] = 1
    gpus_per_node: Annotated[PositiveCount, "trainer.n_gpus_per_node"] = 8
    questions: Annotated[PositiveCount, "data.train_batch_size"] = 1_024
    """Of a step."""
    group_size: Annotated[PositiveCount, f"{_ROLLOUT}.n"] = 1
    prompt_tokens: Annotated[PositiveCount, "data.max_prompt_length"] = 512
    response_tokens: Annotated[PositiveCount, "data.max_response_length"] = 512
    sampled_tokens: Annotated[int, f"{_ROLLOUT}.max_model_len"] = 0
    """The most that an engine reads; 0 for prompt and response."""
    steps: Annotated[PositiveCount, "trainer.total_training_steps"]
    folder: Annotated[Path, "trainer.default_local_dir"] = Path("checkpoints")
    kept_checkpoints: Annotated[PositiveCount | None, "trainer.max_actor_ckpt_to_keep"] = None
    """None keeps all."""
    save_every: Annotated[int, "trainer.save_freq"] = -1
    """Steps; below 1 saves none."""
    sequence_parallel: Annotated[PositiveCount, f"{_ACTOR}.ulysses_sequence_parallel_size"] = 1
    """GPUs that share one sequence while training."""
    tokens_per_gpu: Annotated[PositiveCount, f"{_ACTOR}.ppo_max_token_len_per_gpu"] = 16_384
    """Of one pass while training."""
    packs_by_tokens: Annotated[bool, f"{_ACTOR}.use_dynamic_bsz"] = False
    """Whether that limit is read; else a pass has a fixed number of rows."""
    shard_gpus: Annotated[int, f"{_ACTOR}.fsdp_config.fsdp_size"] = -1
    """GPUs over which weights are sharded; -1 is all."""
    offloads_weights: Annotated[bool, f"{_ACTOR}.fsdp_config.param_offload"] = False
    offloads_moments: Annotated[bool, f"{_ACTOR}.fsdp_config.optimizer_offload"] = False
    computes_on_host: Annotated[bool, f"{_ACTOR}.fsdp_config.offload_policy"] = False
    """FSDP2's own offloading: weights, gradients and moments are in the host's memory, where the optimiser runs."""
    packs: Annotated[bool, "actor_rollout_ref.model.use_remove_padding"] = True
    """Sequences of a pass share one row without padding, which needs flash attention."""
    recomputes: Annotated[bool, "actor_rollout_ref.model.enable_gradient_checkpointing"] = True
    has_reference: Annotated[bool, f"{_ACTOR}.use_kl_loss"] = False
    bypasses: Annotated[bool, "algorithm.rollout_correction.bypass_mode"] = False
    """Whether the sampled log-probabilities stand for the policy's, which saves a pass."""
    fuses: Annotated[bool, "actor_rollout_ref.model.use_fused_kernels"] = False
    """Whether log-probabilities are computed piece by piece, so that no pass holds all logits."""
    engine: Annotated[str, f"{_ROLLOUT}.name"] = ""
    transport: Annotated[str, f"{_ROLLOUT}.checkpoint_engine.backend"] = "naive"
    """Of weights to engines with GPUs of their own."""
    engine_share: Annotated[float, Field(gt=0, lt=1), f"{_ROLLOUT}.gpu_memory_utilization"] = 0.5
    """Of a GPU's memory, for the sampling engine while it samples."""
    tensor_parallel: Annotated[PositiveCount, f"{_ROLLOUT}.tensor_model_parallel_size"] = 2
    engine_seats: Annotated[PositiveCount, f"{_ROLLOUT}.max_num_seqs"] = 256
    """The most sequences that one engine serves at once."""
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
    def sharded_over(self) -> int:
        """GPUs that hold one copy of the weights together."""
        return self.shard_gpus if 0 < self.shard_gpus < self.gpus else self.gpus

    @property
    def attempts(self) -> int:
        """Of a step."""
        return self.questions * self.group_size

    @property
    def reflected(self) -> float:
        """Questions of an average step that are reflected on: with repeats, half of a window's steps are new."""
        share = 0.5 if self.settings.repeats and self.settings.reflect_phase == "new" else 1.0
        return self.questions * share * self.settings.meta_policy

    @property
    def total_tokens(self) -> int:
        """The tokens of the longest sequence."""
        return self.prompt_tokens + self.response_tokens

    @property
    def longest_window(self) -> int | None:
        """The most tokens of a window, where a context is folded before an attempt is over; else None."""
        fold_at, limits = self.settings.context.fold_at, self.settings.limits
        if fold_at is None or fold_at + self.settings.max_turn_tokens >= self.prompt_tokens + limits.max_tokens:
            return None
        return fold_at + self.settings.max_turn_tokens


_RUN_KEYS = {name: field.metadata[-1] for name, field in RunShape.model_fields.items() if name != "settings"}
"""The key of each number in veRL's config."""


def read_run_shape(config: Config) -> RunShape:
    """The shape of a run from its config, composed by Hydra or read from its file.

    Raises:
        ConfigError: a value is missing, of the wrong kind or out of range, or two of them contradict each other.
    """
    settings = read_section(config.get(SECTION))
    fields = {name: value_at(config, key, None) for name, key in _RUN_KEYS.items()} | {"settings": settings}
    if settings.ahead is not None:
        fields["ahead"] = settings.ahead
    try:
        # Not strict: YAML has strings for paths and whole numbers for floats.
        given = {name: value for name, value in fields.items() if value is not None}
        shape = RunShape.model_validate(given, strict=False)
    except ValidationError as cause:
        name = str(cause.errors()[0]["loc"][0])
        raise ConfigError(f"the config's {_RUN_KEYS[name]} is refused {first_problem(cause)}") from cause
    _refuse_uneven(shape)
    return shape


def _refuse_uneven(shape: RunShape) -> None:
    """Raise ConfigError where the GPUs cannot be divided as asked, or a sequence or an episode does not fit."""
    for name, number in (
        ("sequence_parallel", shape.sequence_parallel),
        ("tensor_parallel", shape.tensor_parallel),
        ("shard_gpus", shape.sharded_over),
    ):
        if shape.gpus % number:
            raise ConfigError(
                f"{shape.gpus} GPUs cannot be divided into {_RUN_KEYS[name]}={number}; it must divide them."
            )
    # Longer rows would stop the run on its first day or its last.
    room = shape.tokens_per_gpu * shape.sequence_parallel
    reflected = shape.settings.reflection.total_tokens if shape.settings.meta_policy else 0
    for name, tokens in (
        ("data.max_prompt_length + max_response_length", shape.total_tokens),
        (_RUN_KEYS["sampled_tokens"], shape.sampled_tokens),
        ("rubricem.reflection.total_tokens", reflected),
    ):
        if shape.packs_by_tokens and room < tokens:
            raise ConfigError(
                f"{name} is {tokens}, and training holds rows of {room} tokens ({_RUN_KEYS['tokens_per_gpu']}="
                f"{shape.tokens_per_gpu} on {shape.sequence_parallel} GPUs a sequence). Raise it to "
                f"{-(-tokens // shape.sequence_parallel)}, share a sequence among more GPUs, or lower the length."
            )
    window = shape.longest_window
    if window is not None and window > shape.total_tokens:
        raise ConfigError(
            f"a window may have {window} tokens (rubricem.context.fold_at and a turn of rubricem.max_turn_tokens), and "
            f"data.max_prompt_length and max_response_length are {shape.total_tokens} together. Lower the one or raise "
            "the other."
        )
    if window is None and shape.settings.limits.max_tokens > shape.response_tokens:
        raise ConfigError(
            f"rubricem.limits.max_tokens is {shape.settings.limits.max_tokens} and data.max_response_length "
            f"{shape.response_tokens}; an episode must fit into the response. Lower the one or raise the other."
        )
