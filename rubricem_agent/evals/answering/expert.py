"""The almanac's scripted expert as a policy: it knows the truth of its question, and bounds what a policy can reach."""

from collections.abc import Mapping, Sequence

from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_env.domain.errors import UsageError
from rubricem_env.world.faults import Faults
from rubricem_env.world.flat_teacher import FlatTeacher
from rubricem_env.world.questions import Question
from rubricem_env.world.teacher import AlmanacTeacher


class ExpertWriter:
    """One episode of the expert."""

    def __init__(self, teacher: AlmanacTeacher | FlatTeacher) -> None:
        self._teacher = teacher
        self._observations: list[str] | None = None

    def emission(self, observation: str) -> str:
        """The first one is given the prompt, which holds nothing that was searched for."""
        if self._observations is None:
            self._observations = []
        else:
            self._observations.append(observation)
        return self._teacher.turn(self._observations)


class ExpertSchool:
    """Finds the expert for a question by the question's words."""

    def __init__(self, questions: Mapping[str, Question], *, is_flat: bool, faults: Faults) -> None:
        self._questions = questions
        self._is_flat = is_flat
        self._faults = faults

    @classmethod
    def over(cls, questions: Sequence[Question], *, is_flat: bool, faults: Faults | None = None) -> "ExpertSchool":
        known = {question.question: question for question in questions}
        return cls(known, is_flat=is_flat, faults=faults or Faults())

    def policy(self) -> ScriptedPolicy:
        """The expert for any question of the world."""
        return ScriptedPolicy(self.open, name="expert")

    def open(self, opening: Opening, seed: int) -> ExpertWriter:
        """The expert for the question of an opening.

        Raises:
            UsageError: the question is not of this world.
        """
        asked = next((words for words in self._questions if words in opening.user), None)
        if asked is None:
            raise UsageError("the policy expert knows the questions of the almanac alone. Use it with that benchmark.")
        kind = FlatTeacher if self._is_flat else AlmanacTeacher
        return ExpertWriter(kind.for_seed(self._questions[asked], faults=self._faults, seed=seed))
