"""What is asked of a judge about reflections: candidates of one judged attempt in, three dimensions each out."""

from enum import StrEnum
from typing import NamedTuple, Protocol

from rubricem_env.domain.judgement import Judgement, Unscored
from rubricem_env.domain.reflection import ReflectionScore
from rubricem_env.domain.rubric import Rubric
from rubricem_env.scaffold.reading import Reading

EMPTY = ReflectionScore(diagnosis=0.0, specificity=0.0, scope=0.0)
"""An empty candidate's score, given without a call (choice C3)."""


class ReflectionMode(StrEnum):
    """How candidates are shown to the judge (choice C2)."""

    LISTWISE = "listwise"
    """All in one call, shuffled: one trajectory to read instead of eight."""
    POINTWISE = "pointwise"
    """One call each: scored without a look at the others."""


class ReflectionTask(NamedTuple):
    """Candidates that were written about one attempt, with what the evaluators know of it."""

    question: str
    reading: Reading
    judgement: Judgement
    rubrics: tuple[Rubric, ...]
    """Those that the judgement's verdicts speak of; `GroupJudgement.rubrics` holds them."""
    candidates: tuple[str, ...]
    mode: ReflectionMode = ReflectionMode.LISTWISE
    seed: int = 0


class ReflectionOpinion(NamedTuple):
    """One candidate's score and the reason for it, or why there is none."""

    outcome: ReflectionScore | Unscored
    justification: str = ""
    prompt_hash: str = ""
    """Of the prompt that the score was asked for with; empty where none was."""


ReflectionFindings = tuple[ReflectionOpinion, ...]
"""One for each candidate, in the task's order."""


class ReflectionJudge(Protocol):
    """A failure of the world is a value here, as with `Judge`."""

    async def judge_reflections(self, task: ReflectionTask) -> ReflectionFindings: ...
