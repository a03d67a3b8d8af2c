"""The scripted expert without the scaffold: plain think-and-act traces of the same knowledge, to compare with."""

from collections.abc import Sequence

from rubricem_env.world.errands import follow, plan_errands
from rubricem_env.world.faults import Faults, Slips, draw_slips
from rubricem_env.world.findings import find_all
from rubricem_env.world.questions import Question
from rubricem_env.world.teacher import NO_SLIPS, answer_text, call_text, reading_text


class FlatTeacher:
    """Makes the searches and gives the answer of `AlmanacTeacher` with the same slips: no plan, no review."""

    def __init__(self, question: Question, slips: Slips = NO_SLIPS) -> None:
        self.question = question
        self.slips = slips

    @classmethod
    def for_seed(cls, question: Question, faults: Faults, *, seed: int) -> "FlatTeacher":
        """The expert with the faults that are drawn for this question and seed."""
        return cls(question, draw_slips(question, faults, seed=seed))

    def turn(self, observations: Sequence[str]) -> str:
        """The next turn, after all observations so far."""
        progress = follow(plan_errands(self.question, self.slips), observations)
        opening = f"<think>{reading_text(self.question, self.slips, progress=progress)}</think>"
        if progress.ahead:
            return opening + call_text(progress.ahead[0])
        return opening + answer_text(
            find_all(self.question, self.slips, progress=progress), self.question, slips=self.slips
        )
