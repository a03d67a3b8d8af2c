"""Leaves out active rubrics at random, so that a policy cannot rely on one."""

from collections.abc import Sequence

import numpy as np

from rubricem_env.domain.judgement import Rubric


def drop_rubrics(rubrics: Sequence[Rubric], share: float, *, rng: np.random.Generator) -> tuple[Rubric, ...]:
    """Drop each active rubric with the given probability. Persistent ones stay, and no stage loses its last rubric."""
    if share == 0.0:
        return tuple(rubrics)
    # Drawn in the order of ids, so that the result does not depend on the order of the list.
    draws = {rubric.id: rng.random() for rubric in sorted(rubrics, key=lambda rubric: rubric.id)}
    kept = {rubric.id for rubric in rubrics if rubric.persistent or draws[rubric.id] >= share}
    for stage in dict.fromkeys(rubric.stage for rubric in rubrics):
        own = [rubric for rubric in rubrics if rubric.stage == stage]
        if not any(rubric.id in kept for rubric in own):
            kept.add(max(own, key=lambda rubric: draws[rubric.id]).id)
    return tuple(rubric for rubric in rubrics if rubric.id in kept)
