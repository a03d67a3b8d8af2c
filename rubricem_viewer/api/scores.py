"""One number for each stage."""

from rubricem_env.domain.base import Frozen


class StageScores(Frozen):
    """One number a stage; null where there is none."""

    plan: float | None = None
    research: float | None = None
    review: float | None = None
    answer: float | None = None
