"""The almanac's scripted expert as a policy: it knows the truth of each question."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_env.domain.errors import UsageError
from rubricem_env.world.expert import AlmanacTeacher
from rubricem_env.world.questions import Question


@dataclass
class ExpertWriter:
    """One episode of the almanac's expert, which knows the truth of its question and bounds what a policy can reach."""

    teacher: AlmanacTeacher
    _observations: list[str] = field(default_factory=list)

    def emission(self, observation: str) -> str:
        """The next turn. The first observation is the prompt, which contains no search result."""
        self._observations.append(observation)
        return self.teacher.turn(self._observations[1:])


def expert_policy(questions: Sequence[Question], *, is_flat: bool) -> ScriptedPolicy:
    """A policy that answers any of the questions by its truth. It finds the question by its words in the prompt.

    Its episodes raise UsageError for other questions.
    """
    by_words = {question.question: question for question in questions}

    def open_episode(opening: Opening, _seed: int) -> ExpertWriter:
        words = next((words for words in by_words if words in opening.user), None)
        if words is None:
            raise UsageError("the policy expert knows the questions of the almanac alone. Use it with that benchmark.")
        return ExpertWriter(AlmanacTeacher(by_words[words], is_flat=is_flat))

    return ScriptedPolicy(open_episode, name="expert")
