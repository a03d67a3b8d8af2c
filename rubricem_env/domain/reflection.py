"""A reflection, which is the item that the rubric bank keeps (paper, section 3.4), and its scores."""

from pydantic import model_validator

from rubricem_env.domain.base import Frozen, Text, UnitScore
from rubricem_env.domain.judgement import Provenance


class ReflectionScore(Frozen):
    """The judge's three scores of one reflection, and the combined scores."""

    diagnosis: UnitScore
    specificity: UnitScore
    scope: UnitScore

    @property
    def within(self) -> float:
        """Use for the next attempt at the same question: 0.4 diagnosis + 0.6 specificity."""
        return 0.4 * self.diagnosis + 0.6 * self.specificity

    @property
    def cross(self) -> float:
        """Use for other questions: 0.4 diagnosis + 0.6 scope."""
        return 0.4 * self.diagnosis + 0.6 * self.scope

    @property
    def utility(self) -> float:
        """The reflection's reward, the mean of both uses: 0.4 diagnosis + 0.3 specificity + 0.3 scope."""
        return (self.within + self.cross) / 2


class Reflection(Frozen):
    """Guidance distilled from one attempt: rubrics that mattered in hindsight, and portable lessons."""

    query_key: Text
    question: Text
    rubrics: Text
    takeaways: Text
    score: ReflectionScore | None = None
    """The judge's score. It is None if no judge scored it, as at inference."""
    provenance: Provenance = Provenance()

    @model_validator(mode="after")
    def _says_something(self) -> "Reflection":
        if not (self.rubrics.strip() and self.takeaways.strip()):
            raise ValueError("a reflection needs rubrics and takeaways; at least one of them is empty")
        return self
