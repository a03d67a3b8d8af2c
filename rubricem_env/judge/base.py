"""What the pipeline asks of a judge: to propose rubrics by contrast, and to mark one trajectory by given rubrics.

What is asked of a judge about reflections: candidates of one judged attempt in, three dimensions each out.

A group: all attempts at one question that are judged together.

The settings of judging a step; the defaults are the paper's.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, NamedTuple, Protocol

from pydantic import Field

from rubricem_env.domain.base import STAGES, Frozen, Stage
from rubricem_env.domain.judgement import Judgement, ReflectionScore, Rubric, Unscored
from rubricem_env.domain.trajectory import Ending, Query, Trajectory
from rubricem_env.judge.rubrics import RubricSet, StageCaps
from rubricem_env.judge.scoring import Opinion
from rubricem_env.scaffold.reading import Reading, read_trajectory

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


class ScoringRequest(NamedTuple):
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

    async def score(self, examination: ScoringRequest) -> Findings: ...


def present_stages(reading: Reading) -> tuple[Stage, ...]:
    """The stages that are there to be judged."""
    return tuple(stage for stage in STAGES if reading.happened(stage))


EMPTY = ReflectionScore(diagnosis=0.0, specificity=0.0, scope=0.0)
"""An empty candidate's score, given without a call (choice C3)."""


class ReflectionMode(StrEnum):
    """How candidates are shown to the judge (choice C2)."""

    LISTWISE = "listwise"
    """All in one call, shuffled: one trajectory to read instead of eight."""
    POINTWISE = "pointwise"
    """One call each: scored without a look at the others."""


class ReflectionTask(NamedTuple):
    """Candidates that were written about one attempt, with what the evaluators know of it."""

    question: str
    reading: Reading
    judgement: Judgement
    rubrics: tuple[Rubric, ...]
    """Those that the judgement's verdicts speak of; `GroupJudgement.rubrics` holds them."""
    candidates: tuple[str, ...]
    mode: ReflectionMode = ReflectionMode.LISTWISE
    seed: int = 0


class ReflectionOpinion(NamedTuple):
    """One candidate's score and the reason for it, or why there is none."""

    outcome: ReflectionScore | Unscored
    justification: str = ""
    prompt_hash: str = ""
    """Of the prompt that the score was asked for with; empty where none was."""


ReflectionFindings = tuple[ReflectionOpinion, ...]
"""One for each candidate, in the task's order."""


class ReflectionJudge(Protocol):
    """A failure of the world is a value here, as with `Judge`."""

    async def judge_reflections(self, task: ReflectionTask) -> ReflectionFindings: ...


class Group(NamedTuple):
    """One question's attempts, read."""

    query: Query
    readings: tuple[Reading, ...]

    @classmethod
    def of(cls, query: Query, attempts: Iterable[Trajectory | Reading]) -> "Group":
        """A group of attempts; one that has been read already is not read again."""
        return cls(query, tuple(one if isinstance(one, Reading) else read_trajectory(one) for one in attempts))

    @property
    def key(self) -> str:
        return self.query.key

    @property
    def intact(self) -> tuple[int, ...]:
        """The places of the attempts that the infrastructure did not break off: the others tell nothing of the policy."""
        endings = (reading.trajectory.ending for reading in self.readings)
        return tuple(place for place, ending in enumerate(endings) if ending is not Ending.ABANDONED)

    @property
    def has_contrast(self) -> bool:
        """Whether there are two intact attempts that differ: without, there is nothing to tell apart."""
        return len({self.readings[place].policy_text for place in self.intact}) > 1

    @property
    def fingerprint(self) -> str:
        """Of what the policy wrote and of the question's own rubrics, in order."""
        told = hashlib.sha256()
        for reading in self.readings:
            told.update(f"{len(reading.policy_text)}\0{reading.policy_text}".encode("utf-8", "replace"))
        told.update("\0".join(rubric.id for rubric in self.query.rubrics).encode())
        return told.hexdigest()[:16]


class Merged(NamedTuple):
    """Groups with each question once, and where each original group's rollouts are."""

    groups: tuple[Group, ...]
    places: tuple[tuple[str, int, int], ...]
    """For each original group: its key, and the slice of the merged group's rollouts."""


def merge_groups(groups: Sequence[Group]) -> Merged:
    """Groups of the same question become one, so that it is contrasted and scored once (choice B17)."""
    merged: dict[str, Group] = {}
    places = []
    for group in groups:
        earlier = merged.get(group.key)
        before = earlier.readings if earlier else ()
        merged[group.key] = Group(earlier.query if earlier else group.query, before + group.readings)
        places.append((group.key, len(before), len(before) + len(group.readings)))
    return Merged(tuple(merged.values()), tuple(places))


Share = Annotated[float, Field(ge=0.0, le=1.0)]


class JudgeSettings(Frozen):
    """How rubrics are kept and when a step is given up."""

    caps: StageCaps = StageCaps()
    archive_limit: Annotated[int, Field(ge=0)] = 50
    """Retired rubrics kept for each question, newest first to stay."""
    dropout: Share = 0.0
    """The share of active rubrics that a group is not marked by, drawn anew each step: a policy cannot lean on one."""
    failure_limit: Share = 0.2
    """More rollouts of a step than this without a score stop the step (choice B7)."""
    seed: int | None = None
    """None is the run's seed."""
