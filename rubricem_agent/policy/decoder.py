"""The forward passes that sample, over a KV cache of many conversations kept between turns.

`RowDecoder` has the cache, and a subclass runs the layers of its model over it. `Qwen3Decoder` reads the modules of
a dense Qwen3, so weights in training are used as they are; unlike transformers' `generate`, it does not copy the cache
at every step. The layer's arithmetic is that of training, too.

Other causal language models play through their own modules, which costs more: layers that only attend share the cache
of rows and are batched; others, such as those with a recurrent state, run one conversation at a time with transformers'
own cache. Before it plays, each is compared with its own forward pass without a cache.
"""

import copy
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, DynamicCache, PreTrainedConfig, PreTrainedModel, Qwen3ForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RMSNorm

from rubricem_env.domain.errors import ConfigError, ModelError, boundary

FIRST_CAPACITY = 1_024
BUSY_SHARE = 0.5
"""Idle rows between busy ones are computed too, to avoid copying the cache, if at least this share is busy."""


class Feed(NamedTuple):
    """New tokens of one row, at the positions of its cache from `start` on."""

    row: int
    start: int
    ids: Sequence[int]
    wanted: int = 1
    """The logits after that many of the last tokens are wanted."""


class RowStep(NamedTuple):
    """The new tokens of all rows, right-padded. B rows, T tokens, L cached positions."""

    first: int
    """The cache row of the step's first row."""
    length: int
    """L."""
    ids: Tensor
    """(B, T)."""
    positions: Tensor
    """(B, T): the position of each token in its row; the scratch position for padding."""
    mask: Tensor
    """(B, 1, T, L): which cached positions each token sees."""
    rows: Tensor
    """The row of each token whose logits are wanted, counted from `first`."""
    columns: Tensor
    """Its column."""

    @property
    def span(self) -> int:
        return len(self.positions)


class RowDecoder:
    """A model with a cache of `rows` conversations of at most `max_length` tokens. Not safe to share among threads."""

    can_rewind = True
    """Whether a row goes on before tokens that it has read, without reading it again."""

    def __init__(self, model: PreTrainedModel, *, rows: int, max_length: int) -> None:
        self.max_length = max_length
        self.rows = rows
        self._device = model.device
        self._capacity = 0
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    @torch.inference_mode()
    def logits(self, feeds: Sequence[Feed]) -> Tensor:
        """Append each row's new tokens to its cache; the logits that are wanted, (tokens, vocabulary), float32.

        Feeds are in the order of their rows, one for each row. A row that continues before its last tokens overwrites
        them.
        """
        self._reserve(max(feed.start + len(feed.ids) for feed in feeds))
        return torch.cat([self._run(self._step(run)) for run in _dense_runs(feeds)])

    @torch.inference_mode()
    def copy_prefix(self, source: int, target: int, *, length: int) -> None:
        """Copy the first positions of another row's cache."""
        for stored in (*self._keys, *self._values):
            stored[target, :, :length] = stored[source, :, :length]

    def _run(self, step: RowStep) -> Tensor:
        """The logits that are wanted."""
        raise NotImplementedError

    def _reserve(self, length: int) -> None:
        """Make room by doubling, so that the cache is copied only a few times per conversation."""
        if length <= self._capacity:
            return
        capacity = min(self.max_length, max(FIRST_CAPACITY, 2 * self._capacity, length))
        for caches in (self._keys, self._values):
            for index, old in enumerate(caches):
                # One position more than can be used: padding is written there.
                caches[index] = old.new_zeros((self.rows, old.shape[1], capacity + 1, old.shape[3]))
                caches[index][:, :, : self._capacity] = old[:, :, : self._capacity]
        self._capacity = capacity

    def _step(self, feeds: Sequence[Feed]) -> RowStep:
        device = self._device
        first = feeds[0].row
        span = feeds[-1].row - feeds[0].row + 1
        width = max(len(feed.ids) for feed in feeds)
        length = max(feed.start + len(feed.ids) for feed in feeds)
        starts = torch.zeros(span, 1, dtype=torch.long)
        sizes = torch.zeros(span, 1, dtype=torch.long)
        ids = torch.zeros(span, width, dtype=torch.long)
        busy = torch.tensor([feed.row - first for feed in feeds])
        starts[busy, 0] = torch.tensor([feed.start for feed in feeds])
        sizes[busy, 0] = torch.tensor([len(feed.ids) for feed in feeds])
        for feed in feeds:
            ids[feed.row - first, : len(feed.ids)] = torch.tensor(feed.ids)
        offsets = torch.arange(width)[None]
        reach = starts + offsets
        positions = torch.where(offsets < sizes, reach, self._capacity)
        # Padding and idle rows see position 0, so that no row of the softmax is empty.
        mask = torch.arange(length)[None, None, None] <= reach[:, None, :, None]
        rows = torch.tensor([feed.row - first for feed in feeds for _ in range(feed.wanted)])
        columns = torch.tensor([column for feed in feeds for column in range(len(feed.ids))[-feed.wanted :]])
        return RowStep(first, length, *(tensor.to(device) for tensor in (ids, positions, mask, rows, columns)))

    def _append(self, keys: Tensor, values: Tensor, *, index: int, step: RowStep) -> tuple[Tensor, Tensor]:
        """Write a layer's new keys and values; return what the step's rows have cached so far."""
        seen = []
        for caches, new in ((self._keys, keys), (self._values, values)):
            if index == len(caches):
                caches.append(new.new_zeros((self.rows, new.shape[1], self._capacity + 1, new.shape[3])))
            rows = caches[index][step.first : step.first + step.span]
            rows[torch.arange(step.span, device=new.device)[:, None], :, step.positions] = new.transpose(1, 2)
            seen.append(rows[:, :, : step.length])
        return seen[0], seen[1]


def _dense_runs(feeds: Sequence[Feed]) -> list[Sequence[Feed]]:
    """The feeds, split at their widest gaps until enough of the rows in between are busy."""
    span = feeds[-1].row - feeds[0].row + 1
    if len(feeds) >= BUSY_SHARE * span:
        return [feeds]
    gaps = [after.row - before.row for before, after in pairwise(feeds)]
    cut = gaps.index(max(gaps)) + 1
    return [*_dense_runs(feeds[:cut]), *_dense_runs(feeds[cut:])]


Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of each token's position, (..., 1, size of a head) each."""


class Qwen3Decoder(RowDecoder):
    """Dense Qwen3 without sliding windows."""

    def __init__(self, model: Qwen3ForCausalLM, *, rows: int, max_length: int) -> None:
        if model.model.has_sliding_layers:
            raise ConfigError("this decoder has no sliding-window attention; serve the model and use openai:MODEL@URL.")
        super().__init__(model, rows=rows, max_length=max_length)
        self._model = model
        self._cos = torch.empty(0)
        self._sin = torch.empty(0)

    def _run(self, step: RowStep) -> Tensor:
        hidden = self._model.model.embed_tokens(step.ids)
        rotation = self._cos[step.positions][:, :, None], self._sin[step.positions][:, :, None]
        for index, layer in enumerate(self._model.model.layers):
            hidden = run_layer(layer, hidden, rotation, partial(self._attend, index=index, step=step))
        final = rms_norm(self._model.model.norm, hidden[step.rows, step.columns])
        logits: Tensor = self._model.lm_head(final)
        return logits.float()

    def _reserve(self, length: int) -> None:
        before = self._capacity
        super()._reserve(length)
        if self._capacity > before:
            embedding = self._model.model.embed_tokens.weight
            positions = torch.arange(self._capacity + 1, device=embedding.device)[None]
            cos, sin = self._model.model.rotary_emb(embedding[None, :1], positions)
            self._cos = cos[0]
            self._sin = sin[0]

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, *, index: int, step: RowStep) -> Tensor:
        """Of (B, T, heads, D) to the cache and to these tokens; (B, T, heads x D)."""
        keys, values = self._append(keys.transpose(1, 2), values.transpose(1, 2), index=index, step=step)
        mixed = _attend(queries.transpose(1, 2), keys, values=values, mask=step.mask)
        return mixed.transpose(1, 2).flatten(2)


def run_layer(
    layer: Qwen3DecoderLayer,
    hidden: Tensor,
    rotation: Rotation,
    attend: Callable[[Tensor, Tensor, Tensor], Tensor],
    project: Callable[[nn.Module, Tensor], Tensor] = nn.Module.__call__,
) -> Tensor:
    """One layer on (..., tokens, width); `attend` takes queries, keys and values, (..., tokens, heads, size) each.

    `project` applies the linear modules.
    """
    attention, mlp = layer.self_attn, layer.mlp
    normed = rms_norm(layer.input_layernorm, hidden)
    shape = (*normed.shape[:-1], -1, attention.head_dim)
    queries = rotate(rms_norm(attention.q_norm, project(attention.q_proj, normed).view(shape)), rotation)
    keys = rotate(rms_norm(attention.k_norm, project(attention.k_proj, normed).view(shape)), rotation)
    mixed = attend(queries, keys, project(attention.v_proj, normed).view(shape))
    hidden = hidden + project(attention.o_proj, mixed)
    normed = rms_norm(layer.post_attention_layernorm, hidden)
    gated = mlp.act_fn(project(mlp.gate_proj, normed)) * project(mlp.up_proj, normed)
    return hidden + project(mlp.down_proj, gated)


def rms_norm(norm: Qwen3RMSNorm, hidden: Tensor) -> Tensor:
    """The module's norm in one kernel, in the type of the hidden states."""
    return functional.rms_norm(hidden, norm.weight.shape, norm.weight.to(hidden.dtype), norm.variance_epsilon)


def rotate(states: Tensor, rotation: Rotation) -> Tensor:
    """Queries or keys, turned by their positions."""
    cos, sin = rotation
    half = states.shape[-1] // 2
    turned = torch.cat((-states[..., half:], states[..., :half]), dim=-1)
    return states * cos + turned * sin


def _attend(queries: Tensor, keys: Tensor, *, values: Tensor, mask: Tensor) -> Tensor:
    """Grouped-query attention without repeating keys: the queries of one group are laid out like tokens."""
    batch, heads, width, size = queries.shape
    groups = heads // keys.shape[1]
    grouped = queries.reshape(batch, keys.shape[1], groups * width, size)
    visible = mask.expand(-1, groups, -1, -1).reshape(batch, 1, groups * width, -1)
    mixed = functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=visible)
    return mixed.reshape(batch, heads, width, size)


_FULL = "full_attention"
_SLIDING = "sliding_attention"
_SERVE = "Serve it and use openai:MODEL@URL, or vllm:MODEL@URL#FOLDER."
_CACHE_ARGUMENTS = ("cache", "past_key_values")
"""The name since transformers 5.24, and the one before."""
TOLERANCE = 1e-3
"""How far log-probabilities with and without a cache may differ in float32; 50 times that in a narrower type."""


def model_class(folder: Path) -> type[PreTrainedModel]:
    """The class that loads a folder's weights as what they are; reads the config alone.

    Raises:
        ConfigError: the architecture is unknown, or no causal language model that can be played here.
    """
    if not (folder / "config.json").is_file():
        is_adapter = (folder / "adapter_config.json").is_file()
        way_out = (
            "it holds an adapter; merge it: python -m rubricem_trainers.lora ADAPTER OUT"
            if is_adapter
            else "give the folder that save_pretrained wrote"
        )
        raise ConfigError(f"{folder} holds no config.json; {way_out}.")
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as cause:
        said = str(cause).strip().splitlines()[0]
        raise ConfigError(f"the architecture in {folder} is unknown to transformers: {said} {_SERVE}") from cause
    name = (config.architectures or [""])[0]
    kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if name.endswith("ForConditionalGeneration"):
        kind = getattr(transformers, name, None)
    if kind is None or config.is_encoder_decoder or name not in ("", kind.__name__):
        raise ConfigError(
            f"{folder} holds a {name or config.model_type}, which is no causal language model of transformers. {_SERVE}"
        )
    if _cache_argument(kind) is None:
        raise ConfigError(f"a {name} keeps another state than keys and values, which is not played here. {_SERVE}")
    if getattr(config, "quantization_config", None) is not None:
        raise ConfigError(f"{folder} holds quantised weights, which are not played here. {_SERVE}")
    return cast(type[PreTrainedModel], kind)


def _cache_argument(kind: type[PreTrainedModel]) -> str | None:
    """The parameter of a model's forward pass that takes keys and values; None for a model without one."""
    parameters = inspect.signature(kind.forward).parameters
    return next((name for name in _CACHE_ARGUMENTS if name in parameters), None)


def max_positions(config: PreTrainedConfig, most: int) -> int:
    """The longest conversation of a model, at most `most`."""
    return min(most, getattr(config.get_text_config(), "max_position_embeddings", most))


def open_decoder(model: PreTrainedModel, *, rows: int, max_length: int) -> RowDecoder:
    """The fastest decoder that has this model's own log-probabilities.

    Raises:
        ConfigError: none has.
    """
    if isinstance(model, Qwen3ForCausalLM) and not model.model.has_sliding_layers:
        return Qwen3Decoder(model, rows=rows, max_length=max_length)
    kinds: list[type[RowDecoder]] = [SequentialDecoder]
    if _layer_kinds(model) <= {_FULL, _SLIDING}:
        kinds.insert(0, BatchedDecoder)
    for kind in kinds:
        if _agrees(model, kind(model, rows=2, max_length=16)):
            slow = ", one conversation at a time" if kind is SequentialDecoder else ""
            _say_once(f"{type(model).__name__} plays through transformers' own layers{slow}: slower than dense Qwen3.")
            return kind(model, rows=rows, max_length=max_length)
    raise ConfigError(f"{type(model).__name__} has other log-probabilities with its cache than without it. {_SERVE}")


def _layer_kinds(model: PreTrainedModel) -> set[str]:
    config = model.config.get_text_config()
    usual = _SLIDING if getattr(config, "sliding_window", None) else _FULL
    return set(getattr(config, "layer_types", None) or [usual])


@cache
def _say_once(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")


@torch.inference_mode()
def _agrees(model: PreTrainedModel, decoder: RowDecoder) -> bool:
    """Whether two conversations of different length, continued, have the model's own log-probabilities."""
    longer, shorter = [1, 2, 3, 4, 5, 6], [3, 2, 1]
    tolerance = TOLERANCE * (1 if model.dtype in (torch.float32, torch.float64) else 50)
    try:
        with boundary(ModelError, "run the local model"):
            decoder.logits([Feed(0, 0, longer[:3]), Feed(1, 0, shorter[:1])])
            decoder.logits([Feed(0, 3, longer[3:5])])
            cached = decoder.logits([Feed(0, 5, longer[5:]), Feed(1, 1, shorter[1:])])
            for row, ids in enumerate((longer, shorter)):
                whole = model(input_ids=torch.tensor([ids], device=model.device), use_cache=False).logits[0, -1].float()
                gap = (whole.log_softmax(-1) - cached[row].log_softmax(-1)).abs().max()
                if not gap <= tolerance:
                    return False
    except ModelError:
        return False
    return True


class _SharedCache(DynamicCache):
    """Hands the keys and values of each layer to the decoder."""

    def __init__(self, append: Callable[..., tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self._append_rows = append

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        return self._append_rows(key_states, value_states, index=layer_idx)


class BatchedDecoder(RowDecoder):
    """A model whose layers attend to keys and values alone."""

    def __init__(self, model: PreTrainedModel, *, rows: int, max_length: int) -> None:
        super().__init__(model, rows=rows, max_length=max_length)
        self._model = model
        self._cache_argument = _cache_argument(type(model)) or _CACHE_ARGUMENTS[0]
        self._layers = _layer_kinds(model)
        self._window = getattr(model.config.get_text_config(), "sliding_window", None) or max_length

    def _run(self, step: RowStep) -> Tensor:
        kept = torch.unique(step.columns)
        logits: Tensor = self._model(
            input_ids=step.ids,
            attention_mask=self._masks(step),
            # Learnt positions have no scratch place.
            position_ids=torch.where(step.positions == self._capacity, 0, step.positions),
            use_cache=True,
            logits_to_keep=kept,
            **{self._cache_argument: _SharedCache(partial(self._append, step=step))},
        ).logits
        return logits[step.rows, torch.searchsorted(kept, step.columns)].float()

    def _masks(self, step: RowStep) -> Tensor | dict[str, Tensor]:
        """What is added to the attention scores, by the kind of a layer where a model has several."""
        near = torch.arange(step.length, device=self._device) > step.positions[:, None, :, None] - self._window
        masks = {_FULL: step.mask, _SLIDING: step.mask & near}
        lowest = torch.finfo(self._model.dtype).min
        added = {
            kind: torch.zeros_like(masks[kind], dtype=self._model.dtype).masked_fill(~masks[kind], lowest)
            for kind in sorted(self._layers)
        }
        return added if len(added) > 1 else next(iter(added.values()))


class SequentialDecoder(RowDecoder):
    """Any model with transformers' own cache, one row after the other.

    What such a cache has read cannot always be taken back: a row that is truncated is read again from its beginning.
    """

    can_rewind = False

    def __init__(self, model: PreTrainedModel, *, rows: int, max_length: int) -> None:
        super().__init__(model, rows=rows, max_length=max_length)
        self._model = model
        self._cache_argument = _cache_argument(type(model)) or _CACHE_ARGUMENTS[0]
        self._caches: dict[int, DynamicCache] = {}
        self._read: dict[int, list[int]] = {}

    @torch.inference_mode()
    def logits(self, feeds: Sequence[Feed]) -> Tensor:
        return torch.cat([self._feed(feed) for feed in feeds])

    @torch.inference_mode()
    def copy_prefix(self, source: int, target: int, *, length: int) -> None:
        self._caches.pop(target, None)
        self._read[target] = self._read[source][:length]
        if length == len(self._read[source]) and source in self._caches:
            self._caches[target] = copy.deepcopy(self._caches[source])

    def _feed(self, feed: Feed) -> Tensor:
        read = self._read.get(feed.row, [])
        cache = self._caches.pop(feed.row, None)
        new = list(feed.ids)
        start = feed.start
        if cache is None or start != len(read):
            cache = DynamicCache(config=self._model.config)
            new = [*read[:start], *new]
            start = 0
        ids = torch.tensor([new], device=self._device)
        positions = torch.arange(start, start + len(new), device=self._device)[None]
        self._read[feed.row] = [*read[: feed.start], *feed.ids]
        logits: Tensor = self._model(
            input_ids=ids,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=feed.wanted,
            **{self._cache_argument: cache},
        ).logits
        self._caches[feed.row] = cache
        return logits[0].float()
