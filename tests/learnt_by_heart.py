"""A tiny policy that has learnt one text by heart, so that there is something to train on."""

from pathlib import Path

import torch

from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer


def learn_by_heart(folder: Path, text: str, *, updates: int = 45) -> Path:
    """Train the policy to write the text as its first turn, and save it; returns the folder."""
    tokenizer = tiny_tokenizer([text])
    model = tiny_qwen3(len(tokenizer))
    ids = torch.tensor([tokenizer(f"<|im_start|>assistant\n{text}<|im_end|>")["input_ids"]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(updates):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder
