"""What a run asks of an agent: one answer to one example, or the reason why there is none."""

from typing import NamedTuple, Protocol

from rubricem_agent.evals.example import Example
from rubricem_env.domain.query import AnswerFormat
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.llm.usage import Usage


class Task(NamedTuple):
    """One example as it is given to an agent, in one epoch."""

    example: Example
    answer_format: AnswerFormat
    guidance: str = ""
    """What is said of the answer's form, after the question."""
    epoch: int = 0


class Answered(NamedTuple):
    """A finished attempt, or a failure of the world: never both, never neither."""

    trajectory: Trajectory | None = None
    given: str | None = None
    """An answer without a trajectory."""
    failure: str = ""
    usage: Usage = Usage()
    model: str = ""


class Answerer(Protocol):
    """An agent. Many tasks run at once on one event loop."""

    @property
    def name(self) -> str: ...

    async def answer(self, task: Task) -> Answered:
        """Attempt the task.

        Raises:
            ModelError: the policy failed; so does any other exception at the runner's boundary, for this example alone.
            CeilingReached: the run may spend no more.
        """
        ...

    async def aclose(self) -> None: ...
