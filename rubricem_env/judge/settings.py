"""The settings of judging a step; the defaults are the paper's."""

from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.judge.rubric_set import StageCaps

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class JudgeSettings(Frozen):
    """How rubrics are kept and when a step is given up."""

    caps: StageCaps = StageCaps()
    archive_limit: Annotated[int, Field(ge=0)] = 50
    """Retired rubrics kept for each question, newest first to stay."""
    dropout: Share = 0.0
    """The share of active rubrics that a group is not marked by, drawn anew each step: a policy cannot lean on one."""
    failure_limit: Share = 0.2
    """More rollouts of a step than this without a score stop the step (choice B7)."""
    seed: int | None = None
    """None is the run's seed."""
