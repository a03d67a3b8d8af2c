"""The four stages of a trajectory, in their order (paper, section 2.2)."""

from enum import StrEnum


class Stage(StrEnum):
    """A part of the trajectory with a decision role of its own."""

    PLAN = "plan"
    RESEARCH = "research"
    REVIEW = "review"
    ANSWER = "answer"

    @property
    def position(self) -> int:
        """Its place in the order, from 0; the row of the stage matrix."""
        return STAGES.index(self)


STAGES: tuple[Stage, ...] = tuple(Stage)
NUM_STAGES = len(STAGES)
