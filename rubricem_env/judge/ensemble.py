"""Several judges as one: combines their scores by mean, majority or trimmed mean."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from rubricem_env.concurrency import run_together
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.judgement import RubricScore
from rubricem_env.judge.base import Contrast, Judge, Proposal, ScoringRequest, ScoringResult

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
        results = await run_together(member.score(request) for member in self._members)
        whole = [result for result in results if result.rubric_scores and not result.is_answer_only]
        usable = whole or [result for result in results if result.rubric_scores]
        failure = "; ".join(result.failure for result in results if result.failure)
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
