"""Writes a Qwen3 of random weights with a real BPE tokenizer into a folder: `python -m tests.lanes.vllm.tiny_model FOLDER`."""

import sys
from pathlib import Path

from rubricem_env.testing.tiny_qwen3 import tiny_qwen3, tiny_tokenizer

MAX_LENGTH = 2_048


def write_model(folder: Path) -> Path:
    """In float32, with as many ids as the tokenizer has."""
    tokenizer = tiny_tokenizer(["How wide is the Tall Fox? Größe: 12 µm, 川の幅."])
    model = tiny_qwen3(len(tokenizer), max_length=MAX_LENGTH)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    write_model(Path(sys.argv[1]))
