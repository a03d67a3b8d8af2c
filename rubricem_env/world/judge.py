"""The almanac's judge: no language model, the true criteria, and four knobs for how far it strays from them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.judgement import Judgement, StageScore, Verdict
from rubricem_env.domain.query import query_key
from rubricem_env.domain.rubric import Provenance, Rubric
from rubricem_env.domain.stage import STAGES
from rubricem_env.judge.base import Contrast, Examination, Findings, Proposal, present_stages
from rubricem_env.judge.opinion import FULL_MARK, Opinion
from rubricem_env.judge.reflecting import ReflectionFindings, ReflectionTask
from rubricem_env.judge.rules.reflections import judge_reflections
from rubricem_env.judge.rules.terms import find_quote, key_terms
from rubricem_env.judge.scoring import mark_variance
from rubricem_env.judge.seeds import open_generator
from rubricem_env.scaffold.reading import Reading
from rubricem_env.world.criteria import Criterion, criteria_of
from rubricem_env.world.errors import WorldError
from rubricem_env.world.evidence import Evidence
from rubricem_env.world.questions import Question

MAX_PER_STAGE = 4
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class JudgeKnobs(Frozen):
    """How the judge strays from the truth; all at rest by default."""

    noise: Share = 0.0
    """The chance that a mark is moved by one, up or down."""
    length_bias: Share = 0.0
    """The chance that a stage with twice the usual text gets a mark more."""
    failure_rate: Share = 0.0
    """The chance that a call fails."""
    latency: Annotated[float, Field(ge=0.0)] = 0.0
    """Seconds a call takes."""


class AlmanacJudge:
    """Marks by the true criteria, bent by its knobs. The same attempt gets the same marks, in whatever order it is asked."""

    name = "almanac"

    def __init__(
        self,
        questions: Iterable[Question],
        *,
        knobs: JudgeKnobs | None = None,
        seed: int = 0,
        usual_length: int = 400,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._questions = {query_key(question.question): question for question in questions}
        self._knobs = knobs or JudgeKnobs()
        self._seed = seed
        self._usual_length = usual_length
        self._sleep = sleep

    async def propose(self, contrast: Contrast) -> Proposal:
        """The criteria that in fact separate the group, those that separate it best first."""
        await self._sleep(self._knobs.latency)
        texts = [reading.policy_text for reading in contrast.readings]
        if self._fails("propose", contrast.step, *texts):
            return Proposal(failure="the judge did not answer (its failure knob is on)")
        question = self._question(contrast.question)
        evidence = [Evidence.of(reading) for reading in contrast.readings]
        provenance = Provenance(step=contrast.step, model=self.name)
        chosen: list[Rubric] = []
        for stage in STAGES:
            there = [seen for seen, reading in zip(evidence, contrast.readings, strict=True) if reading.happened(stage)]
            own = [criterion for criterion in criteria_of(question) if criterion.rubric.stage is stage]
            separating = [(_variance(criterion, there), criterion.rubric) for criterion in own]
            ranked = sorted(separating, key=lambda found: (-found[0], -found[1].weight, found[1].title))
            best = [rubric for variance, rubric in ranked if variance > 0][:MAX_PER_STAGE]
            chosen += [rubric.model_copy(update={"provenance": provenance}) for rubric in best]
        return Proposal(tuple(chosen))

    async def score(self, examination: Examination) -> Findings:
        """Marks for the rubrics that are true criteria of the question; others are left unmarked."""
        await self._sleep(self._knobs.latency)
        reading = examination.reading
        if self._fails("score", reading.policy_text):
            return Findings(failure="the judge did not answer (its failure knob is on)")
        criteria = {criterion.rubric.id: criterion for criterion in criteria_of(self._question(examination.question))}
        evidence = Evidence.of(reading)
        there = set(present_stages(reading))
        opinions = {}
        for rubric in examination.rubrics:
            criterion = criteria.get(rubric.id)
            if criterion is not None and rubric.stage in there:
                text = reading.stage_text(rubric.stage)
                mark = self._bent(criterion.mark(evidence), rubric, text)
                opinions[rubric.id] = Opinion.whole(rubric.id, mark, find_quote(text, key_terms(rubric.description)))
        return Findings(opinions)

    async def judge_reflections(self, task: ReflectionTask) -> ReflectionFindings:
        """Three dimensions for each candidate, against what truly went wrong, not against the marks that were given."""
        await self._sleep(self._knobs.latency)
        criteria = criteria_of(self._question(task.question))
        rubrics = tuple(criterion.rubric for criterion in criteria)
        return judge_reflections(task._replace(judgement=_true_judgement(criteria, task.reading), rubrics=rubrics))

    def _question(self, text: str) -> Question:
        found = self._questions.get(query_key(text))
        if found is None:
            raise WorldError(
                f"the almanac's judge does not know the question {text[:60]!r}; give it that world's questions."
            )
        return found

    def _fails(self, *parts: object) -> bool:
        return self._draw("failure", *parts).random() < self._knobs.failure_rate

    def _bent(self, mark: int, rubric: Rubric, text: str) -> int:
        draw = self._draw(rubric.id, text)
        if draw.random() < self._knobs.noise:
            mark += 1 if mark == 0 or (mark < FULL_MARK and draw.random() < 0.5) else -1
        if len(text) >= 2 * self._usual_length and draw.random() < self._knobs.length_bias:
            mark += 1
        return min(FULL_MARK, max(0, mark))

    def _draw(self, *parts: object) -> np.random.Generator:
        return open_generator(self._seed, *parts)


def _variance(criterion: Criterion, group: Sequence[Evidence]) -> float:
    return mark_variance([float(criterion.mark(seen)) for seen in group])


def _true_judgement(criteria: Sequence[Criterion], reading: Reading) -> Judgement:
    evidence = Evidence.of(reading)
    outcomes = {}
    for stage in present_stages(reading):
        own = [criterion for criterion in criteria if criterion.rubric.stage is stage]
        verdicts = tuple(Verdict(rubric_id=c.rubric.id, score=c.mark(evidence)) for c in own)
        share = sum(c.share(evidence) for c in own) / len(own)
        outcomes[stage] = StageScore(score=share, verdicts=verdicts)
    return Judgement.of(outcomes)
