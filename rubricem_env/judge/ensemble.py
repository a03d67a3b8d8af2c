"""Several judges as one: joins their rubrics, and combines their scores by mean, majority or trimmed mean."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from rubricem_env.concurrency import run_together
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.judgement import Rubric, RubricScore, Unscored
from rubricem_env.domain.reflection import ReflectionScore
from rubricem_env.judge.base import Contrast, Judge, Proposal, ScoringRequest, ScoringResult
from rubricem_env.judge.reflections import CandidateScore, ReflectionJudge, ReflectionTask

Combine = Literal["mean", "majority", "trimmed"]
"""How the members' scores become one.

majority: the most common score, the lower of equally common ones. trimmed: the mean without one lowest and one highest
score, from three scores on.
"""
Proposers = Literal["first", "all"]
"""Which members propose rubrics: the first that can, or all at once, whose rubrics are joined without repeats."""


class EnsembleJudge:
    """Members score independently and at once. A failed member is left out; if all fail, the ensemble fails."""

    def __init__(self, members: Sequence[Judge], *, combine: Combine = "mean", proposers: Proposers = "first") -> None:
        if len(members) < 2:
            raise ConfigError(f"the ensemble has {len(members)} members; it needs at least 2. Use the judge by itself.")
        self._members = tuple(members)
        self._combine = combine
        self._proposers = proposers

    @property
    def name(self) -> str:
        return f"{self._combine}({', '.join(member.name for member in self._members)})"

    async def propose(self, contrast: Contrast) -> Proposal:
        """The proposal of the first member that can make one, or those of all members, joined.

        A failed member stands among the refusals; if all fail, the ensemble fails.
        """
        if self._proposers == "all":
            proposals = await run_together(member.propose(contrast) for member in self._members)
        else:
            proposals = []
            for member in self._members:
                proposals.append(await member.propose(contrast))
                if not proposals[-1].failure:
                    break
        failures = [
            f"{member.name}: {proposal.failure}"
            for member, proposal in zip(self._members, proposals, strict=False)
            if proposal.failure
        ]
        if len(failures) == len(proposals):
            return Proposal(failure="; ".join(failures))
        refused = [refusal for proposal in proposals for refusal in proposal.refused]
        return Proposal(
            _join_rubrics(proposals), refused=(*refused, *(f"member_failed: {failure}" for failure in failures))
        )

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

    async def judge_reflections(self, task: ReflectionTask) -> tuple[CandidateScore, ...]:
        """Combined scores of the candidates, by the members that judge reflections.

        Each dimension is the mean of the members' (`trimmed`: the trimmed mean; there is no majority of numbers that
        differ, so `majority` is the mean too). What one member's second reader keeps out stays out.
        """
        members = [member for member in self._members if isinstance(member, ReflectionJudge)]
        given = await run_together(member.judge_reflections(task) for member in members)
        return tuple(
            self._combined_reflection([scores[index] for scores in given]) for index in range(len(task.candidates))
        )

    def _combined_reflection(self, given: Sequence[CandidateScore]) -> CandidateScore:
        refusal = next((judged.refusal for judged in given if judged.refusal), "")
        scored = [(judged.outcome, judged) for judged in given if not isinstance(judged.outcome, Unscored)]
        if not scored:
            reasons = dict.fromkeys(judged.outcome.detail for judged in given if isinstance(judged.outcome, Unscored))
            detail = "; ".join(reasons) or "no member of the ensemble judges reflections"
            return CandidateScore(Unscored(reason="judge_failed", detail=detail), refusal=refusal)
        combine: Combine = "trimmed" if self._combine == "trimmed" else "mean"
        score = ReflectionScore(
            diagnosis=_combine([outcome.diagnosis for outcome, _ in scored], combine),
            specificity=_combine([outcome.specificity for outcome, _ in scored], combine),
            scope=_combine([outcome.scope for outcome, _ in scored], combine),
        )
        # As for a rubric, the justification is that of the member nearest to the combined score.
        nearest = min(scored, key=lambda pair: abs(pair[0].utility - score.utility))[1]
        return CandidateScore(score, nearest.justification, refusal)

    def _combined(self, rubric_id: str, given: Sequence[RubricScore]) -> RubricScore:
        scores = tuple(int(rubric_score.score) for rubric_score in given)
        score = _combine(scores, self._combine)
        # The justification is that of the member nearest to the combined score.
        why = min(given, key=lambda rubric_score: abs(rubric_score.score - score)).justification
        if score != int(score):
            why = f"mean {score:.2f} of the scores {', '.join(map(str, scores))}: {why}"
        return RubricScore(rubric_id=rubric_id, score=score, justification=why, scores=scores)


def _join_rubrics(proposals: Sequence[Proposal]) -> tuple[Rubric, ...]:
    """The rubrics of all proposals in order; of one wording in a stage the first stays, whatever its polarity."""
    joined: dict[object, Rubric] = {}
    for proposal in proposals:
        for rubric in proposal.rubrics:
            joined.setdefault((rubric.stage, rubric.wording), rubric)
    return tuple(joined.values())


def _combine(scores: Sequence[float], combine: Combine) -> float:
    if combine == "majority":
        counts = Counter(scores)
        return float(min(counts, key=lambda score: (-counts[score], score)))
    trimmed = combine == "trimmed" and len(scores) > 2
    return fmean(sorted(scores)[1:-1] if trimmed else scores)
