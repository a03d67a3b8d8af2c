"""Models for the GPU lane: Qwen3 of any shape with random weights, and the shipped tiny policy grown to a larger shape.

The grown policy computes what the tiny one does, so that its episodes are worth judging: new channels, heads and layers
are added with weights of zero.
"""

import math

import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

EIGHT_BILLION = {
    "vocab_size": 151_936,
    "hidden_size": 4_096,
    "intermediate_size": 12_288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": False,
    "max_position_embeddings": 40_960,
}
"""The shape of Qwen3-8B without its number of layers, which is 36."""
TINY = {
    "vocab_size": 1_000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "tie_word_embeddings": False,
    "max_position_embeddings": 2_048,
}


def random_model(
    shape: dict[str, object], layers: int, *, device: torch.device, dtype: torch.dtype
) -> Qwen3ForCausalLM:
    """Random weights, made on the device."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            torch.manual_seed(0)
            return Qwen3ForCausalLM(Qwen3Config(**shape, num_hidden_layers=layers, use_cache=False))
    finally:
        torch.set_default_dtype(before)


def layers_that_fit(
    shape: dict[str, object], free_gib: float, *, bytes_a_parameter: float, gib_a_layer: float, kept_gib: float
) -> int:
    """At most 36 layers for which weights with their state, and each layer's activations, have room."""
    with torch.device("meta"):
        models = [Qwen3ForCausalLM(Qwen3Config(**shape, num_hidden_layers=layers)) for layers in (1, 2)]
    one, two = (sum(parameter.numel() for parameter in model.parameters()) for model in models)
    layer, rest = two - one, 2 * one - two
    room = free_gib - kept_gib - rest * bytes_a_parameter / 2**30
    return max(1, min(36, int(room / (layer * bytes_a_parameter / 2**30 + gib_a_layer))))


def grow(model: Qwen3ForCausalLM, *, layers: int, hidden: int, heads: int, mlp: int) -> Qwen3ForCausalLM:
    """A larger model that computes the same, but for rounding."""
    config = Qwen3Config(**model.config.to_dict())
    old, channels = model.config, math.sqrt(model.config.hidden_size / hidden)
    config.update({"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": mlp})
    config.update(
        {"num_attention_heads": heads, "num_key_value_heads": heads, "layer_types": ["full_attention"] * layers}
    )
    # The mean square of a hidden state is taken over more channels, which are zero.
    config.rms_norm_eps = old.rms_norm_eps * old.hidden_size / hidden
    grown = Qwen3ForCausalLM(config)
    known = model.state_dict()
    with torch.no_grad():
        for name, parameter in grown.named_parameters():
            parameter.zero_()
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                parameter.fill_(1.0)
            if name in known:
                is_norm = (
                    name.endswith(("layernorm.weight", "norm.weight")) and "q_norm" not in name and "k_norm" not in name
                )
                _corner(parameter, known[name]).copy_(known[name] * (channels if is_norm else 1.0))
    return grown.to(model.dtype)


def _corner(large: Tensor, small: Tensor) -> Tensor:
    return large[tuple(slice(size) for size in small.shape)]
