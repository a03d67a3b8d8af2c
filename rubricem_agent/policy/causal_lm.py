"""Which causal language models can be played in this process, and by which decoder.

Models without a decoder of their own play through transformers' modules, which costs more: layers that only attend
share the cache of rows and are batched; others, such as those with a recurrent state, run one conversation at a time
with transformers' own cache. Before it plays, each is compared with its own forward pass without a cache.
"""

import copy
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    DynamicCache,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from rubricem_agent.policy.decoder import Feed, RowDecoder, RowStep
from rubricem_agent.policy.dense_decoder import (
    FULL_ATTENTION,
    SLIDING_ATTENTION,
    DenseDecoder,
    attend_by_groups,
    is_dense,
    layer_kinds,
)
from rubricem_env.domain.errors import ConfigError, ModelError, boundary

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
    if is_dense(model):
        return DenseDecoder(model, rows=rows, max_length=max_length)
    kinds: list[type[RowDecoder]] = [SequentialDecoder]
    if layer_kinds(model) <= {FULL_ATTENTION, SLIDING_ATTENTION}:
        kinds = [BatchedDecoder, *kinds]
        _attend_by_groups(model)
    for kind in kinds:
        if _agrees(model, kind(model, rows=2, max_length=16)):
            slow = ", one conversation at a time" if kind is SequentialDecoder else ""
            _say_once(
                f"{type(model).__name__} plays through transformers' own layers{slow}: slower than a dense model."
            )
            return kind(model, rows=rows, max_length=max_length)
    raise ConfigError(f"{type(model).__name__} has other log-probabilities with its cache than without it. {_SERVE}")


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


_GROUPED = "rubricem_grouped"


def _attend_by_groups(model: PreTrainedModel) -> None:
    """Let the layers of a model with fewer keys than queries attend without repeating keys at each token.

    transformers repeats them wherever there is a mask, and a cache of rows of different length always has one.
    """
    config = model.config.get_text_config()
    is_grouped = getattr(config, "num_key_value_heads", None) not in (None, config.num_attention_heads)
    if is_grouped and config._attn_implementation == "sdpa":
        AttentionInterface.register(_GROUPED, _grouped_attention)
        AttentionMaskInterface.register(_GROUPED, sdpa_mask)
        config._attn_implementation = _GROUPED


def _grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """What transformers' own attention gives; (rows, tokens, heads, size)."""
    if attention_mask is None or dropout:
        usual = {"dropout": dropout, "scaling": scaling, **others}
        return cast(tuple[Tensor, None], sdpa_attention_forward(module, query, key, value, attention_mask, **usual))
    return attend_by_groups(query, key, values=value, mask=attention_mask, scale=scaling).transpose(1, 2), None


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
        self._layers = layer_kinds(model)
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
        near = torch.arange(step.length, device=self.device) > step.positions[:, None, :, None] - self._window
        masks = {FULL_ATTENTION: step.mask, SLIDING_ATTENTION: step.mask & near}
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
        ids = torch.tensor([new], device=self.device)
        positions = torch.arange(start, start + len(new), device=self.device)[None]
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
