"""How a step is judged: caps of rubrics, dropout, and when the step stops."""

from pydantic import Field

from rubricem_env.domain.base import Count, UnitScore
from rubricem_env.domain.settings import Settings
from rubricem_env.judge.rubrics.rubric_set import StageCaps


class JudgeSettings(Settings):
    """How rubrics are kept, and when a step is stopped. The defaults are the paper's."""

    caps: StageCaps = Field(default_factory=dict)
    """The most active rubrics of a stage, by its name; else 3 of plan, 2 of research, 2 of review and 3 of answer."""
    retires_flat: bool = True
    """Retire an active rubric that gave all attempts of its group one score, below the caps too. false leaves it until
    the caps cut it: then the caps alone retire, as in the paper's section C.4.
    """
    archive_limit: Count = 50
    """How many retired rubrics are kept for each question. The oldest are dropped first."""
    dropout: UnitScore = 0.0
    """The share of active rubrics left out, drawn anew each step, so that a policy cannot rely on one."""
    failure_limit: UnitScore = 0.2
    """The step stops when more than this share of its rollouts is invalid: a policy must not learn from the rest."""
    proposal_limit: UnitScore = 0.5
    """Training stops when the proposals of rubrics fail for more than this share of a step's questions."""
    seed: int | None = None
    """None uses the run's seed."""
