"""Writes a Qwen3 of random weights with a real BPE tokenizer into a folder."""

from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rubricem_env.testing.tiny_model import tiny_tokenizer

MAX_LENGTH = 2_048
HEAD_DIM = 64
"""vLLM's attention on a CPU knows 32, 64 and more, and fails at the first request below that."""


CORPUS = ("How wide is the Tall Fox? Größe: 12 µm, 川の幅.",)


def write_model(folder: Path, corpus: Iterable[str] = CORPUS, *, max_length: int = MAX_LENGTH) -> Path:
    """In float32, with as many ids as the tokenizer has."""
    tokenizer = tiny_tokenizer(corpus)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=HEAD_DIM,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        # Wider than usual, so that some tokens are far likelier than others and a wrong place shows.
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
