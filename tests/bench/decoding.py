"""Decoding of grouped-query models beside transformers' `generate`, in one process on one thread.

    python tests/bench/decoding.py [--json FILE]

Random weights in the shape of SmolLM2-135M, and a Gemma 3 of as many layers and heads: ours reads the first itself, and
plays the second through transformers' modules. One row after 3,000 tokens, and 24 rows after 1,000. `generate` decodes
its rows in one batch of equal length, which is its best case; its prompt is not counted. The greedy tokens are equal.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import (
    DynamicCache,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from rubricem_agent.policy.causal_lm import open_decoder
from rubricem_agent.policy.decoder import Feed

SHAPE = {
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1_536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 8_192,
    "tie_word_embeddings": True,
}
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SHAPE, layer_types=["full_attention"] * 30)),
}
CASES = ((1, 3_000), (24, 1_000))
TOKENS = 20


def ours(model: PreTrainedModel, prompt: list[int], rows: int) -> tuple[float, list[int]]:
    """Tokens a second of all rows, and the tokens of the first."""
    decoder = open_decoder(model, rows=rows, max_length=len(prompt) + TOKENS + 2)
    for row in range(rows):
        last = decoder.logits([Feed(row, 0, prompt)])[0]
    drawn = [int(last.argmax())]
    began = time.perf_counter()
    for step in range(TOKENS):
        logits = decoder.logits([Feed(row, len(prompt) + step, drawn[-1:]) for row in range(rows)])
        drawn.append(int(logits[0].argmax()))
    return rows * TOKENS / (time.perf_counter() - began), drawn


@torch.inference_mode()
def theirs(model: PreTrainedModel, prompt: list[int], rows: int) -> tuple[float, list[int]]:
    """The same by `generate`, after one token that reads the prompt."""
    cache = DynamicCache(config=model.config)
    ids = torch.tensor([prompt] * rows)
    for chunk in ids[:, :-1].split(512, dim=1):
        model(input_ids=chunk, past_key_values=cache, use_cache=True, logits_to_keep=1)
    settings = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None, "past_key_values": cache}
    first = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, **settings)
    began = time.perf_counter()
    found = model.generate(first, attention_mask=torch.ones_like(first), max_new_tokens=TOKENS, **settings)
    seconds = time.perf_counter() - began
    return rows * TOKENS / seconds, found[0, len(prompt) :].tolist()


def main() -> int:
    """Measure every case; print a line of JSON each."""
    parser = argparse.ArgumentParser(prog="python tests/bench/decoding.py")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    for name, make in MODELS.items():
        torch.manual_seed(0)
        model = make().eval()
        for rows, length in CASES:
            prompt = torch.randint(3, 49_000, (length,), generator=torch.Generator().manual_seed(1)).tolist()
            their_rate, their_tokens = theirs(model, prompt, rows)
            our_rate, our_tokens = ours(model, prompt, rows)
            assert our_tokens == their_tokens, "the greedy tokens differ"
            found = {"model": name, "rows": rows, "after": length, "ours": our_rate, "generate": their_rate}
            results.append({**found, "ratio": our_rate / their_rate})
            sys.stdout.write(f"{json.dumps(results[-1])}\n")
            sys.stdout.flush()
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
