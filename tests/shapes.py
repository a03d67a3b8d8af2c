"""Tiny models of other architectures than dense Qwen3, with random weights: the same for every call."""

import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
)

NAMES = ("llama", "mistral", "qwen2", "qwen3_5", "gemma3")


def tiny(name: str, vocab_size: int) -> PreTrainedModel:
    """Two layers of width 32. Gemma's first layer sees 8 tokens; Qwen3.5's first layer has a recurrent state."""
    size = {"vocab_size": vocab_size, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    size |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4_096}
    # End tokens as in the tiny tokenizer.
    size |= {"bos_token_id": None, "eos_token_id": 2, "pad_token_id": 0, "head_dim": 16}
    mixed = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8, "query_pre_attn_scalar": 16}
    linear = {"layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 4}
    linear |= {"linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: PreTrainedModel = {
            "llama": lambda: LlamaForCausalLM(LlamaConfig(**size)),
            "mistral": lambda: MistralForCausalLM(MistralConfig(**size, sliding_window=None)),
            "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**size)),
            "qwen3_5": lambda: Qwen3_5ForCausalLM(Qwen3_5TextConfig(**size, **linear)),
            "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**size, **mixed)),
        }[name]()
    return model.eval()
