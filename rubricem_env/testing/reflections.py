"""Reflections to write into a bank, and an embedder whose similarities are known by hand."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rubricem_env.domain.query import query_key
from rubricem_env.domain.reflection import Reflection, ReflectionScore
from rubricem_env.domain.rubric import Provenance


class PlaneEmbedder:
    """Questions are angles: "at 30" lies 30 degrees from "at 0", so the cosine of the two is that of 30 degrees."""

    name = "plane"
    dimension = 2

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        angles = np.radians([float(text.split()[1]) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def make_reflection(
    question: str, *, rubrics: str = "States each figure with its unit.", takeaways: str = "", step: int = 0
) -> Reflection:
    """A scored reflection that a bank lets in; its takeaways name the question unless given."""
    return Reflection(
        query_key=query_key(question),
        question=question,
        rubrics=rubrics,
        takeaways=takeaways or f"Begin with {question}.",
        score=ReflectionScore(diagnosis=0.5, specificity=1.0, scope=0.0),
        provenance=Provenance(step=step, model="tiny", prompt_hash="abc"),
    )
