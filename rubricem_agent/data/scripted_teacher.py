"""The almanac's scripted expert as a teacher: no model, no key, the same traces every time."""

from collections.abc import Mapping, Sequence

from rubricem_agent.data.turns import PendingTurn, TurnReply
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import Origin
from rubricem_env.world.faults import Faults
from rubricem_env.world.flat_teacher import FlatTeacher
from rubricem_env.world.questions import Question
from rubricem_env.world.teacher import AlmanacTeacher


class ScriptedTeacher:
    """Writes for the questions of one world; `flat` leaves the scaffold out.

    Raises:
        ConfigError: it is asked for a question that is not of its world.
    """

    name = "scripted"

    def __init__(
        self, questions: Mapping[str, Question], *, faults: Faults | None = None, seed: int = 0, flat: bool = False
    ) -> None:
        self._questions = questions
        self._faults = faults or Faults()
        self._seed = seed
        self._form = FlatTeacher if flat else AlmanacTeacher

    async def write(self, pending: Sequence[PendingTurn]) -> Sequence[TurnReply]:
        return [TurnReply(id=turn.id, text=self._write(turn)) for turn in pending]

    async def aclose(self) -> None:
        return

    def _write(self, turn: PendingTurn) -> str:
        question = self._questions.get(turn.task.id)
        if question is None:
            raise ConfigError(
                f"the scripted teacher knows no question {turn.task.id!r}; it writes for almanac questions alone. "
                "Use a model as the teacher, or a questions file of the almanac."
            )
        segments = turn.trajectory.segments
        observations = [segment.text for segment in segments if segment.origin is Origin.TOOL]
        return self._form.for_seed(question, self._faults, seed=self._seed).turn(observations)
