"""Which attempt of a group is reflected on: one, drawn evenly among those that the world did not break."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rubricem_agent.reflection.errors import ReflectionError
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.rubric import Rubric
from rubricem_env.domain.trajectory import Ending
from rubricem_env.judge.group import Group
from rubricem_env.judge.outcomes import GroupJudgement
from rubricem_env.scaffold.reading import Reading


class JudgedAttempt(NamedTuple):
    """One rollout, with what the evaluators said of it."""

    reading: Reading
    judgement: Judgement
    rubrics: tuple[Rubric, ...] = ()
    """Those that the judgement's verdicts speak of."""

    @property
    def is_intact(self) -> bool:
        """Whether it ended by the policy's doing or by a limit; one without an answer is intact (choice C6)."""
        return self.reading.trajectory.ending is not Ending.ABANDONED


def judged_attempts(group: Group, judged: GroupJudgement) -> tuple[JudgedAttempt, ...]:
    """A group's attempts, each with its judgement."""
    pairs = zip(group.readings, judged.judgements, strict=True)
    return tuple(JudgedAttempt(reading, judgement, judged.rubrics) for reading, judgement in pairs)


def draw_attempt(attempts: Sequence[JudgedAttempt], generator: np.random.Generator) -> int:
    """The place of one intact attempt, each as likely as any other: no look at score or length.

    Raises:
        ReflectionError: none is intact.
    """
    intact = [place for place, attempt in enumerate(attempts) if attempt.is_intact]
    if not intact:
        raise ReflectionError(f"none of the {len(attempts)} attempts came to an end of its own; nothing to reflect on.")
    return int(generator.choice(intact))
