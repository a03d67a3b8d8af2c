"""The interface of judges of reflections."""

from typing import Literal, NamedTuple, Protocol, runtime_checkable

from rubricem_env.domain.judgement import Judgement, Rubric, Unscored
from rubricem_env.domain.reflection import ReflectionScore
from rubricem_env.scaffold.parsed import ParsedTrajectory

EMPTY = ReflectionScore(diagnosis=0.0, specificity=0.0, scope=0.0)
"""The score of an empty candidate. No judge is called for it."""
ReflectionMode = Literal["listwise", "pointwise"]
"""How candidates are shown to the judge.

listwise: all in one call, shuffled, so that one trajectory is read instead of eight. pointwise: one call for each.
"""


class ReflectionTask(NamedTuple):
    """Reflections written about one attempt, with the judgement of the attempt."""

    question: str
    parsed: ParsedTrajectory
    judgement: Judgement
    rubrics: tuple[Rubric, ...]
    """The rubrics of the judgement's scores, as in `GroupJudgement.rubrics`."""
    candidates: tuple[str, ...]
    mode: ReflectionMode = "listwise"
    seed: int = 0


class CandidateScore(NamedTuple):
    """One candidate's score with its justification, or why it has none."""

    outcome: ReflectionScore | Unscored
    justification: str = ""
    refusal: str = ""
    """Why the second reader keeps it out of the bank; empty where it does not, or is not asked."""


@runtime_checkable
class ReflectionJudge(Protocol):
    """Scores reflections. Failures are values, as with `Judge`."""

    async def judge_reflections(self, task: ReflectionTask) -> tuple[CandidateScore, ...]:
        """One score for each candidate, in the task's order."""
