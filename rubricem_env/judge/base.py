"""The interface of judges: requests and results for rubrics, scores and reflections, groups, and the step's settings.

A third-party judge implements `Judge`, and `ReflectionJudge` where it scores reflections too. `EnsembleJudge` is several
judges as one.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, Protocol

from pydantic import Field

from rubricem_env.concurrency import run_together
from rubricem_env.domain.base import STAGES, Frozen, Stage, UnitScore
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.judgement import Judgement, ReflectionScore, Rubric, RubricScore, Unscored
from rubricem_env.domain.trajectory import Ending, Query, Trajectory
from rubricem_env.judge.rubrics import RubricSet, StageCaps
from rubricem_env.scaffold.parsed import ParsedTrajectory, parse_trajectory

_NONE: Mapping[str, RubricScore] = MappingProxyType({})


class Contrast(NamedTuple):
    """Attempts at one question, to be contrasted."""

    question: str
    trajectories: tuple[ParsedTrajectory, ...]
    known: RubricSet = RubricSet()
    """Existing rubrics: persistent and active ones are not to be proposed again, retired ones may be."""
    step: int = 0
    seed: int = 0
    """Of the order in which the attempts are shown."""


class Proposal(NamedTuple):
    """New rubrics, or why there are none."""

    rubrics: tuple[Rubric, ...] = ()
    failure: str = ""
    """The call failed or the reply was unusable. Empty where the judge just has nothing to add."""
    refused: tuple[str, ...] = ()
    """Reasons for each proposed rubric that was refused."""


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
    """The full call failed, and a reduced call scored the answer alone (choice B7)."""
    prompt_hash: str = ""
    """Of the scoring prompt; empty where no model was asked."""


class Judge(Protocol):
    """A judge returns its failures as values. Only a reached spend limit is raised."""

    @property
    def name(self) -> str: ...

    async def propose(self, contrast: Contrast) -> Proposal: ...

    async def score(self, request: ScoringRequest) -> ScoringResult: ...


def present_stages(parsed: ParsedTrajectory) -> tuple[Stage, ...]:
    """The stages that happened."""
    return tuple(stage for stage in STAGES if parsed.happened(stage))


EMPTY = ReflectionScore(diagnosis=0.0, specificity=0.0, scope=0.0)
"""The score of an empty candidate; no judge is called (choice C3)."""


ReflectionMode = Literal["listwise", "pointwise"]
"""How candidates are shown to the judge (choice C2).

listwise: all in one call, shuffled, so that one trajectory is read instead of eight. pointwise: one call for each.
"""


class ReflectionTask(NamedTuple):
    """Reflections written about one attempt, with the judgement of the attempt."""

    question: str
    parsed: ParsedTrajectory
    judgement: Judgement
    rubrics: tuple[Rubric, ...]
    """The rubrics of the judgement's scores, as in `GroupJudgement.rubrics`."""
    candidates: tuple[str, ...]
    mode: ReflectionMode = "listwise"
    seed: int = 0


class CandidateScore(NamedTuple):
    """One candidate's score with its justification, or why it has none."""

    outcome: ReflectionScore | Unscored
    justification: str = ""
    refusal: str = ""
    """Why the second reader keeps it out of the bank; empty where it does not, or is not asked."""


class ReflectionJudge(Protocol):
    """Scores reflections. Failures are values, as with `Judge`."""

    async def judge_reflections(self, task: ReflectionTask) -> tuple[CandidateScore, ...]:
        """One score for each candidate, in the task's order."""


class Group(NamedTuple):
    """All attempts at one question that are judged together, as readings."""

    query: Query
    trajectories: tuple[ParsedTrajectory, ...]

    @classmethod
    def of(cls, query: Query, attempts: Iterable[Trajectory | ParsedTrajectory]) -> "Group":
        """A group of attempts; one that has been read already is not read again."""
        return cls(
            query, tuple(one if isinstance(one, ParsedTrajectory) else parse_trajectory(one) for one in attempts)
        )

    @property
    def key(self) -> str:
        return self.query.key

    @property
    def intact(self) -> tuple[int, ...]:
        """Indices of the attempts that no infrastructure failure ended: the others say nothing about the policy."""
        endings = (parsed.trajectory.ending for parsed in self.trajectories)
        return tuple(index for index, ending in enumerate(endings) if ending is not Ending.ABANDONED)

    @property
    def has_contrast(self) -> bool:
        """Whether two intact attempts differ: otherwise there is nothing to contrast."""
        return len({self.trajectories[index].policy_text for index in self.intact}) > 1

    @property
    def fingerprint(self) -> str:
        """A hash of the policy's texts and the question's own rubrics, in order."""
        digest = hashlib.sha256()
        for parsed in self.trajectories:
            digest.update(f"{len(parsed.policy_text)}\0{parsed.policy_text}".encode("utf-8", "replace"))
        digest.update("\0".join(rubric.id for rubric in self.query.rubrics).encode())
        return digest.hexdigest()[:16]


class JudgeSettings(Frozen):
    """How rubrics are kept, and when a step is stopped. The defaults are the paper's."""

    caps: StageCaps = StageCaps()
    archive_limit: Annotated[int, Field(ge=0)] = 50
    """Retired rubrics kept for each question; the oldest are dropped first."""
    dropout: UnitScore = 0.0
    """The share of active rubrics left out, drawn anew each step, so that a policy cannot rely on one."""
    failure_limit: UnitScore = 0.2
    """The step stops when more than this share of its rollouts is invalid (choice B7)."""
    seed: int | None = None
    """None uses the run's seed."""


Combine = Literal["mean", "majority", "trimmed"]
"""How the members' scores become one.

majority: the most common score, the lower of equally common ones. trimmed: the mean without one lowest and one highest
score, from three scores on.
"""


class EnsembleJudge:
    """Members score independently and at once. A failed member is left out; if all fail, the ensemble fails."""

    def __init__(self, members: Sequence[Judge], *, combine: Combine = "mean") -> None:
        if len(members) < 2:
            raise ConfigError(f"the ensemble has {len(members)} members; it needs at least 2. Use the judge by itself.")
        self._members = tuple(members)
        self._combine = combine

    @property
    def name(self) -> str:
        return f"{self._combine}({', '.join(member.name for member in self._members)})"

    async def propose(self, contrast: Contrast) -> Proposal:
        """The proposal of the first member that can make one."""
        failures = []
        for member in self._members:
            proposal = await member.propose(contrast)
            if not proposal.failure:
                return proposal
            failures.append(f"{member.name}: {proposal.failure}")
        return Proposal(failure="; ".join(failures))

    async def score(self, request: ScoringRequest) -> ScoringResult:
        """Combined scores. Members that scored the answer alone count only where no member scored everything."""
        found = await run_together(member.score(request) for member in self._members)
        whole = [result for result in found if result.rubric_scores and not result.is_answer_only]
        usable = whole or [result for result in found if result.rubric_scores]
        failure = "; ".join(result.failure for result in found if result.failure)
        if not usable:
            return ScoringResult(failure=failure or "no member of the ensemble gave a score")
        rubric_scores = {}
        for rubric in request.rubrics:
            given = [result.rubric_scores[rubric.id] for result in usable if rubric.id in result.rubric_scores]
            if given:
                rubric_scores[rubric.id] = self._combined(rubric.id, given)
        hashes = dict.fromkeys(result.prompt_hash for result in usable if result.prompt_hash)
        return ScoringResult(rubric_scores, failure=failure, is_answer_only=not whole, prompt_hash="+".join(hashes))

    def _combined(self, rubric_id: str, given: Sequence[RubricScore]) -> RubricScore:
        scores = tuple(int(rubric_score.score) for rubric_score in given)
        score = _combine(scores, self._combine)
        # The justification is that of the member nearest to the combined score.
        why = min(given, key=lambda rubric_score: abs(rubric_score.score - score)).justification
        if score != int(score):
            why = f"mean {score:.2f} of the scores {', '.join(map(str, scores))}: {why}"
        return RubricScore(rubric_id=rubric_id, score=score, justification=why, scores=scores)


def _combine(scores: Sequence[int], combine: Combine) -> float:
    if combine == "majority":
        counts = Counter(scores)
        return float(min(counts, key=lambda score: (-counts[score], score)))
    trimmed = combine == "trimmed" and len(scores) > 2
    return fmean(sorted(scores)[1:-1] if trimmed else scores)
