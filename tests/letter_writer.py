"""A tiny policy that has learnt one letter by heart, in the stages of writing; and briefs for such letters."""

from pathlib import Path

import torch

from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer
from tests.letters import LETTER, brief


def learn_letter(folder: Path, text: str = LETTER) -> Path:
    """Train the policy to write the letter, or another text, and save it; returns the folder."""
    tokenizer = tiny_tokenizer([text])
    model = tiny_qwen3(len(tokenizer))
    ids = torch.tensor([tokenizer(f"<|im_start|>assistant\n{text}<|im_end|>")["input_ids"]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(45):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


def write_briefs(file: Path, occasions: tuple[str, ...] = ("tea", "dinner")) -> Path:
    """Two briefs or more, each with a rubric of its data set."""
    briefs = [brief(occasion) for occasion in occasions]
    file.write_text("\n".join(brief.model_dump_json() for brief in briefs))
    return file
