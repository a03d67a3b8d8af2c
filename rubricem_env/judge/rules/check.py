"""One rule: a criterion that a function of the facts can mark."""

from collections.abc import Callable
from typing import NamedTuple

from rubricem_env.domain.rubric import Polarity, Provenance, Rubric
from rubricem_env.domain.stage import Stage
from rubricem_env.judge.rules.facts import Facts

RULES_VERSION = "rules-1"


class Marked(NamedTuple):
    """A mark with its reason, which quotes the attempt."""

    mark: int
    reason: str


class Check(NamedTuple):
    """A criterion with the function that marks it."""

    stage: Stage
    title: str
    description: str
    mark: Callable[[Facts], Marked]
    weight: float = 2.0
    polarity: Polarity = Polarity.POSITIVE

    def rubric(self, step: int = 0) -> Rubric:
        return Rubric(
            stage=self.stage,
            title=self.title,
            description=self.description,
            polarity=self.polarity,
            weight=self.weight,
            provenance=Provenance(step=step, model="rules", prompt_hash=RULES_VERSION),
        )
