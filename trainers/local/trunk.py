"""Qwen3 over packed samples: hidden states with a gradient, every token read once and no padding.

Reads the model's own modules. Attention looks at each sample by itself, and at the beginning that it shares where
that lies elsewhere.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional
from transformers import Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RMSNorm

from rubricem_env.domain.errors import ConfigError
from trainers.local.packing import Pack, Run

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of each token's place, (tokens, 1, size of a head) each."""


def refuse_sliding_window(model: Qwen3ForCausalLM) -> None:
    """A window over the last tokens is not built here.

    Raises:
        ConfigError: the model has one.
    """
    if model.model.has_sliding_layers:
        raise ConfigError("the local trainer has no sliding-window attention; train this model with verl_ssgrpo.py.")


def packed_hidden(model: Qwen3ForCausalLM, pack: Pack) -> Tensor:
    """What the head reads, (tokens, width)."""
    device = model.device
    hidden: Tensor = model.model.embed_tokens(torch.as_tensor(pack.token_ids, dtype=torch.long, device=device))
    rotation = _rotation(model, torch.as_tensor(pack.positions, device=device), like=hidden)
    for layer in model.model.layers:
        hidden = _layer(layer, hidden, rotation=rotation, runs=pack.runs)
    return _norm(model.model.norm, hidden)


def _rotation(model: Qwen3ForCausalLM, positions: Tensor, *, like: Tensor) -> Rotation:
    cos, sin = model.model.rotary_emb(like[None, :1], positions[None])
    return cos[0, :, None], sin[0, :, None]


def _layer(layer: Qwen3DecoderLayer, hidden: Tensor, *, rotation: Rotation, runs: Sequence[Run]) -> Tensor:
    attention = layer.self_attn
    normed = _norm(layer.input_layernorm, hidden)
    shape = (len(hidden), -1, attention.head_dim)
    queries = _rotate(_norm(attention.q_norm, attention.q_proj(normed).view(shape)), rotation)
    keys = _rotate(_norm(attention.k_norm, attention.k_proj(normed).view(shape)), rotation)
    values = attention.v_proj(normed).view(shape)
    mixed = torch.cat([_attend(queries, keys, values=values, run=run) for run in runs])
    hidden = hidden + attention.o_proj(mixed)
    out: Tensor = layer.mlp(_norm(layer.post_attention_layernorm, hidden))
    return hidden + out


def _attend(queries: Tensor, keys: Tensor, *, values: Tensor, run: Run) -> Tensor:
    """(own tokens, heads x size): one sample's tokens on themselves and on the beginning that they share."""
    asked = queries[run.start : run.stop].transpose(0, 1)[None]
    grouped = queries.shape[1] != keys.shape[1]
    # The causal kind skips half of the work, and fits only where as many tokens ask as are seen.
    visible = _reach(run, queries.device) if run.shared else None
    mixed = functional.scaled_dot_product_attention(
        asked, _seen(keys, run), _seen(values, run), attn_mask=visible, is_causal=visible is None, enable_gqa=grouped
    )
    return mixed[0].transpose(0, 1).flatten(1)


def _seen(states: Tensor, run: Run) -> Tensor:
    own = states[run.start : run.stop]
    whole = torch.cat([states[run.head : run.head + run.shared], own]) if run.shared else own
    return whole.transpose(0, 1)[None]


def _reach(run: Run, device: torch.device) -> Tensor:
    """(own tokens, all tokens): each sees what is not after it."""
    places = torch.arange(run.length, device=device)
    return places[None] <= places[run.shared :, None]


def _norm(norm: Qwen3RMSNorm, hidden: Tensor) -> Tensor:
    return functional.rms_norm(hidden, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _rotate(states: Tensor, rotation: Rotation) -> Tensor:
    cos, sin = rotation
    half = states.shape[-1] // 2
    turned = torch.cat((-states[..., half:], states[..., :half]), dim=-1)
    return states * cos + turned * sin
