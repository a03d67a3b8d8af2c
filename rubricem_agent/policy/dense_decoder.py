"""A decoder that reads the modules of dense models: Llama, Mistral, Qwen2 and Qwen3.

Weights in training are used as they are, and the layer's arithmetic is that of training, too.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaForCausalLM, MistralForCausalLM, PreTrainedModel, Qwen2ForCausalLM, Qwen3ForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer, MistralRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RMSNorm

from rubricem_agent.policy.cuda_graphs import WIDEST, GraphedPasses, padded_shape
from rubricem_agent.policy.decoder import Feed, RowDecoder, RowStep

DenseModel: TypeAlias = LlamaForCausalLM | MistralForCausalLM | Qwen2ForCausalLM | Qwen3ForCausalLM
DenseLayer: TypeAlias = LlamaDecoderLayer | MistralDecoderLayer | Qwen2DecoderLayer | Qwen3DecoderLayer
RMSNorm: TypeAlias = LlamaRMSNorm | MistralRMSNorm | Qwen2RMSNorm | Qwen3RMSNorm

_CHANGING_ROPE = ("dynamic", "longrope")
"""Their angles depend on the length of the conversation."""


def is_dense(model: PreTrainedModel) -> TypeGuard[DenseModel]:
    """Whether the layers below compute the model: every layer sees all positions, and each has one angle for good."""
    # A subclass may compute something else.
    if type(model) not in (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM):
        return False
    rope = (model.config.rope_parameters or {}).get("rope_type", "default")
    return layer_kinds(model) == {FULL_ATTENTION} and rope not in _CHANGING_ROPE


FULL_ATTENTION = "full_attention"
SLIDING_ATTENTION = "sliding_attention"


def layer_kinds(model: PreTrainedModel) -> set[str]:
    """The kinds of a model's layers, in transformers' words."""
    config = model.config.get_text_config()
    usual = SLIDING_ATTENTION if getattr(config, "sliding_window", None) else FULL_ATTENTION
    return set(getattr(config, "layer_types", None) or [usual])


Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of each token's position, (..., 1, size of a head) each."""


class DenseDecoder(RowDecoder):
    """A model for which `is_dense` holds."""

    def __init__(self, model: DenseModel, *, rows: int, max_length: int) -> None:
        super().__init__(model, rows=rows, max_length=max_length)
        self._model = model
        self._cos = torch.empty(0)
        self._sin = torch.empty(0)
        self._graphs = GraphedPasses(model, self._run) if model.device.type == "cuda" else None

    def _logits(self, feeds: Sequence[Feed]) -> Tensor:
        if self._graphs is None or max(len(feed.ids) for feed in feeds) > WIDEST:
            return super()._logits(feeds)
        shape = padded_shape(feeds, held=self._held, capacity=self._capacity)
        return self._graphs.logits(feeds, self._step(feeds, shape), shape=shape)

    def _run(self, step: RowStep) -> Tensor:
        hidden = self._model.model.embed_tokens(step.ids)
        rotation = self._cos[step.positions][:, :, None], self._sin[step.positions][:, :, None]
        for index, layer in enumerate(self._model.model.layers):
            hidden = run_layer(layer, hidden, rotation, partial(self._attend, index=index, step=step))
        final = rms_norm(self._model.model.norm, hidden[step.rows, step.columns])
        logits: Tensor = self._model.lm_head(final)
        return logits.float()

    def _reserve(self, rows: int, length: int) -> None:
        rows_before, before = self._held, self._capacity
        super()._reserve(rows, length)
        if self._graphs is not None and (rows_before, before) != (self._held, self._capacity):
            self._graphs.forget()
        if self._capacity > before:
            embedding = self._model.model.embed_tokens.weight
            positions = torch.arange(self._capacity + 1, device=embedding.device)[None]
            cos, sin = self._model.model.rotary_emb(embedding[None, :1], positions)
            self._cos = cos[0]
            self._sin = sin[0]

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, *, index: int, step: RowStep) -> Tensor:
        """Of (B, T, heads, D) to the cache and to these tokens; (B, T, heads x D)."""
        keys, values = self._append(keys.transpose(1, 2), values.transpose(1, 2), index=index, step=step)
        mixed = attend_by_groups(queries.transpose(1, 2), keys, values=values, mask=step.mask)
        return mixed.transpose(1, 2).flatten(2)


def run_layer(
    layer: DenseLayer,
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
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    queries, keys, values = (project(linear, normed).view(shape) for linear in projections)
    if isinstance(layer, Qwen3DecoderLayer):
        queries = rms_norm(layer.self_attn.q_norm, queries)
        keys = rms_norm(layer.self_attn.k_norm, keys)
    mixed = attend(rotate(queries, rotation), rotate(keys, rotation), values)
    hidden = hidden + project(attention.o_proj, mixed)
    normed = rms_norm(layer.post_attention_layernorm, hidden)
    gated = mlp.act_fn(project(mlp.gate_proj, normed)) * project(mlp.up_proj, normed)
    return hidden + project(mlp.down_proj, gated)


def rms_norm(norm: RMSNorm, hidden: Tensor) -> Tensor:
    """The module's norm in one kernel, in the type of the hidden states."""
    return functional.rms_norm(hidden, norm.weight.shape, norm.weight.to(hidden.dtype), norm.variance_epsilon)


def rotate(states: Tensor, rotation: Rotation) -> Tensor:
    """Queries or keys, turned by their positions."""
    cos, sin = rotation
    half = states.shape[-1] // 2
    turned = torch.cat((-states[..., half:], states[..., :half]), dim=-1)
    return states * cos + turned * sin


def attend_by_groups(
    queries: Tensor, keys: Tensor, *, values: Tensor, mask: Tensor, scale: float | None = None
) -> Tensor:
    """Grouped-query attention without repeating keys: the queries of one group are laid out like tokens."""
    batch, heads, width, size = queries.shape
    groups = heads // keys.shape[1]
    grouped = queries.reshape(batch, keys.shape[1], groups * width, size)
    visible = mask.expand(-1, groups, -1, -1).reshape(batch, 1, groups * width, -1)
    mixed = functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=visible, scale=scale)
    return mixed.reshape(batch, heads, width, size)
