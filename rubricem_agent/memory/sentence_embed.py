"""Embeds with a sentence-transformers model from a folder or the local cache. Never downloads."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from sentence_transformers import SentenceTransformer
from transformers.utils import logging

from rubricem_agent.memory.embed import Floats, unit_rows
from rubricem_env.domain.errors import ConfigError


class SentenceEmbedder:
    """A sentence-transformers model on the CPU. Questions go in without an instruction: all are queries."""

    def __init__(self, model: SentenceTransformer, *, name: str, dimension: int) -> None:
        self._model = model
        self.name = name
        self.dimension = dimension
        self._lock = threading.Lock()

    @classmethod
    def load(cls, source: str, *, name: str) -> "SentenceEmbedder":
        """The model of a folder, or of a hub name that is in the local cache.

        Raises:
            ConfigError: it is not there.
        """
        try:
            with _no_progress_bar():
                model = SentenceTransformer(source, device="cpu", local_files_only=True)
        except (OSError, ValueError) as cause:
            raise ConfigError(
                f"the embedder {name} is not on this machine: no model at {source!r}. Nothing is downloaded unasked. "
                f"Run: hf download {source}, or give its folder as embedder_path."
            ) from cause
        dimension = model.get_embedding_dimension()
        if dimension is None:
            raise ConfigError(f"the model at {source!r} does not say the size of its vectors; it is no text embedder.")
        return cls(model, name=name, dimension=dimension)

    def embed(self, texts: Sequence[str]) -> Floats:
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        # The tokenizer keeps state while it works; two threads in it at once fail.
        with self._lock:
            rows = self._model.encode(list(texts), show_progress_bar=False, convert_to_numpy=True)
        return unit_rows(rows)


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Loading takes a second; a bar for it would stand in the middle of a command's output."""
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.enable_progress_bar()  # type: ignore[no-untyped-call]
