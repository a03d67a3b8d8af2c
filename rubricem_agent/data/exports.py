"""Samples in the forms that other trainers take: token rows with labels, exact to the token, for TRL and LLaMA-Factory.

Both know masks by message role, and here policy and tools share one message; so they get token ids, which neither
passes through a chat template again.
"""

import json
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from rubricem_agent.data.chatml import ChatSample
from rubricem_agent.data.tokens import ChatTokenizer, encode_sample
from rubricem_env.domain.errors import ConfigError

IGNORED = -100
"""The label of a token without loss, in both trainers."""
ROWS_FILE = "rows.jsonl"
RECIPES = {"trl": "trl_sft.py.txt", "llama_factory": "llama_factory.yaml"}
"""What is laid beside the rows of each trainer."""


class Exported(NamedTuple):
    """What an export has written."""

    folder: Path
    rows: int
    dropped: int
    """Longer than the limit: cut they would lose the answer (choice A14)."""


def export_rows(
    samples: Sequence[ChatSample], tokenizer: ChatTokenizer, *, folder: Path, trainer: str, max_tokens: int
) -> Exported:
    """Write rows.jsonl and the trainer's recipe into the folder.

    Raises:
        ConfigError: there is no such trainer, or the folder cannot be written.
    """
    if trainer not in RECIPES:
        raise ConfigError(f"there is no export for {trainer!r}; there is one for {' and '.join(RECIPES)}.")
    name = RECIPES[trainer]
    recipe = (files("rubricem_agent.data") / "recipes" / name).read_text(encoding="utf-8")
    written = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ROWS_FILE).open("w", encoding="utf-8") as file:
            for row in _rows(samples, tokenizer, max_tokens=max_tokens):
                file.write(json.dumps(row) + "\n")
                written += 1
        (folder / name.removesuffix(".txt")).write_text(recipe, encoding="utf-8")
    except OSError as cause:
        raise ConfigError(f"cannot write to {folder}: {cause.strerror}. Choose another folder with --out.") from cause
    return Exported(folder, written, len(samples) - written)


def _rows(samples: Sequence[ChatSample], tokenizer: ChatTokenizer, *, max_tokens: int) -> Iterator[dict[str, Any]]:
    for sample in samples:
        ids, has_loss = encode_sample(sample, tokenizer)
        if len(ids) <= max_tokens:
            labels = [token if learnt else IGNORED for token, learnt in zip(ids, has_loss, strict=True)]
            yield {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}
