"""What passes over the desk: rollouts in, marks out, and the work that is left for the next step."""

from typing import NamedTuple, Protocol

from rubricem_agent.learn.curriculum import Encounter
from rubricem_agent.reflection.outcome import ReflectionOutcome
from rubricem_agent.rollout.rollout import Rollout
from rubricem_env.domain.query import Query

Four = tuple[float, float, float, float]
"""One number a stage: plan, research, review, answer."""


class Meeting(NamedTuple):
    """A question as the curriculum meets it."""

    query: Query
    step: int
    """Of the curriculum, from 1."""
    encounter: Encounter


class Handed(NamedTuple):
    """One rollout of a group."""

    group: str
    """The group's name: every meeting has its own."""
    place: int
    """Of the rollout in the group, from 0."""
    meeting: Meeting
    rollout: Rollout


class Marks(NamedTuple):
    """What a rollout is worth, once its whole group has been judged."""

    scores: Four
    """As credit takes them: 0 where a stage is missing or nobody could judge it."""
    judged: tuple[float | None, float | None, float | None, float | None]
    """As the judge gave them; None where it gave none."""
    is_valid: bool
    """False where the judge or the world failed: left out of the group's statistics and of the loss."""
    failure: str = ""
    """Why it is not valid, in one sentence."""
    true: Four | None = None
    """By the truth, in the almanac: written down to audit the judge, read by nothing that trains."""


class RolloutCredit(NamedTuple):
    """What the trainer has made of a rollout, to be written down."""

    group: str
    place: int
    """Of the rollout in the group, from 0."""
    returns: Four
    advantages: Four
    trained: bool
    """Whether the step's update uses it."""


class Lessons(NamedTuple):
    """Reflections that a step may train on."""

    outcomes: tuple[ReflectionOutcome, ...]
    failures: tuple[str, ...]
    staleness: tuple[int, ...]
    """Steps from launch to use, of each outcome."""
    pending: int
    """Still being written."""
    bank: int
    """Items that may be retrieved."""
    fault: str = ""
    """Why the desk can go on no longer, such as a ceiling that was reached; "" while it can."""


class DeskCalls(Protocol):
    """The desk as an episode sees it, in this process or through Ray."""

    async def references(self, meeting: Meeting) -> str:
        """The block of lessons to put before the question; "" without any."""
        ...

    async def hand_in(self, handed: Handed) -> Marks:
        """Wait until the group is whole and judged; what this rollout is worth."""
        ...
