"""Rubric dropout: active rubrics that sit out a step, drawn by seed, so that none can be leant on."""

from collections.abc import Sequence

import numpy as np

from rubricem_env.domain.rubric import Rubric
from rubricem_env.domain.stage import STAGES


def drop_rubrics(rubrics: Sequence[Rubric], share: float, *, rng: np.random.Generator) -> tuple[Rubric, ...]:
    """Leave out each active rubric with the given probability; no stage loses its last one, persistent ones stay."""
    if share == 0.0:
        return tuple(rubrics)
    # Drawn in the order of ids, so that the order of the list cannot change who sits out.
    draws = {rubric.id: rng.random() for rubric in sorted(rubrics, key=lambda rubric: rubric.id)}
    kept = {rubric.id for rubric in rubrics if rubric.persistent or draws[rubric.id] >= share}
    for stage in STAGES:
        own = [rubric for rubric in rubrics if rubric.stage is stage]
        if own and not any(rubric.id in kept for rubric in own):
            kept.add(max(own, key=lambda rubric: draws[rubric.id]).id)
    return tuple(rubric for rubric in rubrics if rubric.id in kept)
