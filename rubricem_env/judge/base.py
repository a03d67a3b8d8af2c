"""The interface of judges: requests and results for rubrics and scores.

A third-party judge implements `Judge`, and `ReflectionJudge` where it scores reflections too.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from rubricem_env.domain.judgement import Rubric, RubricScore
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.judge.rubrics.rubric_set import RubricSet
from rubricem_env.scaffold.grammar import DEFAULT
from rubricem_env.scaffold.parsed import ParsedTrajectory

_NONE: Mapping[str, RubricScore] = MappingProxyType({})


class Contrast(NamedTuple):
    """Attempts at one question, to be contrasted."""

    question: str
    trajectories: tuple[ParsedTrajectory, ...]
    known: RubricSet = RubricSet()
    """The rubrics that exist already. Persistent and active ones are not to be proposed again, retired ones may be."""
    step: int = 0
    seed: int = 0
    """The seed of the order in which the attempts are shown."""

    @property
    def scaffold(self) -> Scaffold:
        """The scaffold that the attempts were written by."""
        return self.trajectories[0].scaffold if self.trajectories else DEFAULT


class Proposal(NamedTuple):
    """New rubrics, or why there are none."""

    rubrics: tuple[Rubric, ...] = ()
    failure: str = ""
    """The call failed or the reply was unusable. Empty where the judge just has nothing to add."""
    refused: tuple[str, ...] = ()
    """Reasons for each proposed rubric that was refused, and for each member of an ensemble that failed."""


class ScoringRequest(NamedTuple):
    """One attempt and the rubrics to score it by. The caller leaves out rubrics of stages that never happened."""

    question: str
    parsed: ParsedTrajectory
    rubrics: tuple[Rubric, ...]
    seed: int = 0


class ScoringResult(NamedTuple):
    """Scores by rubric id. A rubric that is not in `rubric_scores` was not scored, which is not a score of 0."""

    rubric_scores: Mapping[str, RubricScore] = _NONE
    failure: str = ""
    """Why rubrics were not scored."""
    is_answer_only: bool = False
    """The full call failed, and a reduced call scored the answer alone."""
    prompt_hash: str = ""
    """The hash of the scoring prompt. It is empty where no model was asked."""


class Judge(Protocol):
    """A judge returns its failures as values. Only a reached spend limit is raised."""

    @property
    def name(self) -> str: ...

    async def propose(self, contrast: Contrast) -> Proposal: ...

    async def score(self, request: ScoringRequest) -> ScoringResult: ...


def present_stages(parsed: ParsedTrajectory) -> tuple[str, ...]:
    """The stages that happened."""
    return tuple(stage for stage in parsed.stages if parsed.happened(stage))
