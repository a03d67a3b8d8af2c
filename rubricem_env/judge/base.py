"""What the pipeline asks of a judge: to propose rubrics by contrast, and to mark one trajectory by given rubrics."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from rubricem_env.domain.rubric import Rubric
from rubricem_env.domain.stage import STAGES, Stage
from rubricem_env.judge.opinion import Opinion
from rubricem_env.judge.rubric_set import RubricSet
from rubricem_env.scaffold.reading import Reading

_NONE: Mapping[str, Opinion] = MappingProxyType({})


class Contrast(NamedTuple):
    """A group of attempts at one question, to be told apart."""

    question: str
    readings: tuple[Reading, ...]
    known: RubricSet = RubricSet()
    """What must not be proposed again."""
    step: int = 0
    seed: int = 0
    """For the order in which the attempts are shown."""


class Proposal(NamedTuple):
    """New rubrics, or the reason why there are none."""

    rubrics: tuple[Rubric, ...] = ()
    failure: str = ""
    """The judge could not be asked, or its reply was unusable; not the same as having nothing to add."""
    refused: tuple[str, ...] = ()
    """Why single proposals were not let in."""


class Examination(NamedTuple):
    """One attempt, and the rubrics to mark it by. Rubrics of stages that never happened are left out by the caller."""

    question: str
    reading: Reading
    rubrics: tuple[Rubric, ...]
    seed: int = 0


class Findings(NamedTuple):
    """Marks by rubric id. A rubric that is not there was not marked, which is not a mark of 0."""

    opinions: Mapping[str, Opinion] = _NONE
    failure: str = ""
    """Why rubrics are left without a mark."""
    is_answer_only: bool = False
    """The full call failed, and only the answer was judged, by the reduced one (choice B7)."""
    prompt_hash: str = ""
    """Of the prompt that the marks were asked for with; empty where none was."""


class Judge(Protocol):
    """A failure of the world is a value here, never an exception; a reached ceiling is an exception and passes."""

    @property
    def name(self) -> str: ...

    async def propose(self, contrast: Contrast) -> Proposal: ...

    async def score(self, examination: Examination) -> Findings: ...


def present_stages(reading: Reading) -> tuple[Stage, ...]:
    """The stages that are there to be judged."""
    return tuple(stage for stage in STAGES if reading.happened(stage))
