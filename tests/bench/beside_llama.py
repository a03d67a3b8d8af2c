"""Tokens a second of a local policy beside llama.cpp's server: one process each, the same threads, in turn.

    python -m tests.bench.beside_llama MODEL URL [--threads 2] [--tokens 64]

MODEL is the folder that `rubricem model smollm2` wrote, URL a server of the same weights with a cache of 8,192 tokens:

    python -m llama_cpp.server --model SmolLM2-135M-Instruct.Q4_1.gguf --n_ctx 8192 --n_threads 2 --port 8781

Ours computes in float32; the server multiplies weights of four bits. One conversation after 3,000 tokens that both have
read, then 24 conversations after 1,000 that were read once before: ours keeps all of them, the server the last.
"""

import argparse
import json
import sys
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from rubricem_agent.policy.causal_lm import open_decoder
from rubricem_agent.policy.decoder import Feed
from rubricem_agent.policy.local import load_model, load_tokenizer

CASES = ((1, 3_000), (24, 1_000))
ROUNDS = 3


def ours(model: Path, prompts: Sequence[Sequence[int]], tokens: int) -> float:
    """Seconds for so many tokens of each conversation, its prompt read before."""
    decoder = open_decoder(load_model(model), rows=len(prompts), max_length=len(prompts[0]) + tokens + 2)
    last = [[int(decoder.logits([Feed(row, 0, ids)])[0].argmax())] for row, ids in enumerate(prompts)]
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for step in range(tokens):
            logits = decoder.logits([Feed(row, len(ids) + step, last[row]) for row, ids in enumerate(prompts)])
            last = [[int(one)] for one in logits.argmax(-1)]
        best = min(best, time.perf_counter() - began)
    return best


def theirs(url: str, prompts: Sequence[str], tokens: int) -> float:
    """The same of the server."""

    def complete(prompt: str, limit: int) -> int:
        # No token ends the text: all write equally many.
        asked = {"prompt": prompt, "max_tokens": limit, "temperature": 0, "logit_bias": {"2": -100, "0": -100}}
        request = urllib.request.Request(
            f"{url}/v1/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as reply:
            return int(json.load(reply)["usage"]["completion_tokens"])

    best = float("inf")
    with ThreadPoolExecutor(len(prompts)) as pool:
        for prompt in prompts:
            complete(prompt, 1)
        for _ in range(ROUNDS if len(prompts) == 1 else 1):
            began = time.perf_counter()
            written = list(pool.map(lambda prompt: complete(prompt, tokens), prompts))
            best = min(best, time.perf_counter() - began)
            assert written == [tokens] * len(prompts), f"the server ended early: {written}"
    return best


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.beside_llama")
    parser.add_argument("model", type=Path)
    parser.add_argument("url")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    tokenizer = load_tokenizer(chosen.model)
    for rows, length in CASES:
        texts = [" ".join(f"river {row} {number} flows" for number in range(length)) for row in range(rows)]
        ids = [tokenizer.encode_foreign(text)[:length] for text in texts]
        prompts = [tokenizer.decode(each) for each in ids]
        their_seconds = theirs(chosen.url, prompts, chosen.tokens)
        our_seconds = ours(chosen.model, ids, chosen.tokens)
        count = rows * chosen.tokens
        sys.stdout.write(
            f"{rows} conversations after {length} tokens: ours {count / our_seconds:.1f} tokens a second, "
            f"the server {count / their_seconds:.1f}, ratio {their_seconds / our_seconds:.2f}\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
