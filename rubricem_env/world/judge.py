"""The almanac's truth as a judge: true criteria by stage, a judge that applies them with four knobs, and true quality.

The judge proposes the criteria that separate a group. The true quality of a stage is the weighted share of all
criteria; no trainer may read it: it audits judges and runs.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Annotated, NamedTuple

from pydantic import Field, TypeAdapter

from rubricem_env.concurrency import open_generator
from rubricem_env.domain.base import Stage, UnitScore
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.inputs import package_text
from rubricem_env.domain.judgement import Judgement, Provenance, Rubric, RubricScore
from rubricem_env.domain.scale import FULL_SCORE, PARTIAL_SCORE
from rubricem_env.domain.settings import Settings
from rubricem_env.domain.trajectory import AnswerFormat, Origin, query_key
from rubricem_env.judge.base import Contrast, Proposal, ScoringRequest, ScoringResult, present_stages
from rubricem_env.judge.reflections import CandidateScore, ReflectionTask
from rubricem_env.judge.rubrics.separation import separating_rubrics
from rubricem_env.judge.rules.key_terms import find_quote, key_terms, plain_text
from rubricem_env.judge.rules.reflections import judge_reflections
from rubricem_env.judge.scoring import score_trajectory
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.world.needs import ImplicitNeed, Need, Trap, mentions
from rubricem_env.world.questions import Question
from rubricem_env.world.tables.attempts import analysis_evidence, table_criteria
from rubricem_env.world.tables.questions import TableQuestion

# The address in a snippet's head, which the environment writes; a page that names another page proves nothing.
_PAGE = re.compile(r'<snippet id="[^"]+">[^\n]*?https://almanac\.example/(\w+)\n')
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n")


class Evidence(NamedTuple):
    """What an attempt shows, to be compared with the truth. The policy's texts are without tags."""

    plan: str
    review: str
    answer: str
    sentences: tuple[str, ...]
    """The sentences of the answer."""
    shown_pages: frozenset[str]
    """The ids of the documents that tools showed. Only the environment's text counts."""
    repeated_calls: int
    known_citations: int
    unknown_citations: int

    @classmethod
    def of(cls, parsed: ParsedTrajectory) -> "Evidence":
        answer = plain_text(parsed.answer or "")
        calls = Counter(turn.call.identity for turn in parsed.turns if turn.call is not None)
        shown = (segment.text for segment in parsed.trajectory.segments if segment.origin is Origin.TOOL)
        return cls(
            plan=plain_text(parsed.stage_text(Stage.PLAN)),
            review=plain_text(parsed.stage_text(Stage.REVIEW)),
            answer=answer,
            sentences=tuple(_SENTENCE_END.split(answer)),
            shown_pages=frozenset(page for text in shown for page in _PAGE.findall(text)),
            repeated_calls=sum(times - 1 for times in calls.values()),
            known_citations=len(parsed.citations.known),
            unknown_citations=len(parsed.citations.unknown),
        )

    def has_shown(self, documents: tuple[str, ...]) -> bool:
        """Whether a tool has shown any of the documents."""
        return not self.shown_pages.isdisjoint(documents)


_RUBRICS = TypeAdapter(dict[str, Rubric]).validate_json(package_text("rubricem_env.world", "criteria.json"))
_GAP_WORDS = ("missing", "not found", "unknown")

TrueScore = Callable[[Evidence], int]
"""The score that an attempt truly deserves by a criterion, from 0 to `FULL_SCORE`."""


class Criterion(NamedTuple):
    """A rubric with the score that an attempt truly deserves by it."""

    rubric: Rubric
    true_score: TrueScore


def criteria_of(question: Question) -> dict[Rubric, TrueScore]:
    """Every criterion of the question, in the order of the stages."""
    return dict((*_plan(question), *_research(question), *_review(question), *_answer(question)))


def _plan(question: Question) -> Iterator[Criterion]:
    # The old and the current value of one attribute need one item of the plan.
    for need in {(need.attribute, need.subject_id): need for need in _searchable(question)}.values():
        whose = "" if need.depends_on else f" of {_name(need)}"
        yield _criterion("plans a need", partial(_planned, need), attribute=need.attribute, whose=whose)
    if question.truth.implicit_needs:
        words = ("convention", *(need.aspect for need in question.truth.implicit_needs if need.kind == "stated"))
        yield _criterion(
            "plans a convention",
            lambda seen: FULL_SCORE * any(mentions(seen.plan, word) for word in words),
            domain=question.domain,
        )


def _planned(need: Need, seen: Evidence) -> int:
    """The full score for the attribute of the right subject, the partial score for the attribute alone."""
    if not all(mentions(seen.plan, word) for word in need.attribute.split()):
        return 0
    return FULL_SCORE if need.depends_on or mentions(seen.plan, _name(need)) else PARTIAL_SCORE


def _research(question: Question) -> Iterator[Criterion]:
    for need in _searchable(question):
        yield _criterion("finds a need", partial(_found, need.document_ids), title=need.title)
    for duty in question.truth.implicit_needs:
        yield _criterion("finds a convention", partial(_found, _sources(duty)), title=duty.title)
    yield _criterion("repeats a search", lambda seen: min(FULL_SCORE, seen.repeated_calls))


def _found(documents: tuple[str, ...], seen: Evidence) -> int:
    return FULL_SCORE * seen.has_shown(documents)


def _review(question: Question) -> Iterator[Criterion]:
    for need in question.truth.needs:
        known = need.title if need.kind == "verdict" else f"the {need.title}"
        yield _criterion("audits a need", partial(_audited, need), known=known)
    for duty in question.truth.implicit_needs:
        yield _criterion("audits a convention", partial(_audited, duty), title=duty.title)


def _audited(need: Need | ImplicitNeed, seen: Evidence) -> int:
    """Full for stating what was found or admitting a gap, partial for silence about a gap, 0 for an unfounded claim."""
    was_found = seen.has_shown(need.document_ids if isinstance(need, Need) else _sources(need))
    is_stated = need.is_met_by(seen.review)
    if was_found or is_stated:
        return FULL_SCORE if was_found and is_stated else 0
    admits_gap = any(word in seen.review.casefold() for word in _GAP_WORDS)
    return FULL_SCORE if admits_gap else PARTIAL_SCORE


def _answer(question: Question) -> Iterator[Criterion]:
    is_exact = question.answer_format is AnswerFormat.EXACT
    for need in question.truth.needs[-1:] if is_exact else question.truth.needs:
        true_score = partial(_given, need) if is_exact else partial(_answered, need)
        yield _criterion("answers a need", true_score, title=need.title, sentence=need.sentence)
    for duty in question.truth.implicit_needs:
        yield _criterion("answers a convention", partial(_given, duty), title=duty.title, sentence=duty.sentence)
    for trap in {trap.wrong_value: trap for trap in question.truth.traps}.values():
        yield _criterion("falls for a trap", partial(_fell, trap), kind=trap.kind, wrong_value=trap.wrong_value)
    if not is_exact:
        yield _criterion("cites", _cited)


def _given(need: Need | ImplicitNeed, seen: Evidence) -> int:
    return FULL_SCORE * need.is_met_by(seen.answer)


def _answered(need: Need, seen: Evidence) -> int:
    """The full score for the value and its subject in one sentence, the partial score for the value elsewhere."""
    if not need.is_met_by(seen.answer):
        return 0
    if need.kind == "verdict" or need.depends_on:
        return FULL_SCORE
    name = _name(need)
    is_together = any(need.is_met_by(sentence) and mentions(sentence, name) for sentence in seen.sentences)
    return FULL_SCORE if is_together else PARTIAL_SCORE


def _cited(seen: Evidence) -> int:
    """The full score for citations of which every one was shown, the partial score where some were not."""
    if not seen.known_citations:
        return 0
    return PARTIAL_SCORE if seen.unknown_citations else FULL_SCORE


def _fell(trap: Trap, seen: Evidence) -> int:
    return FULL_SCORE * trap.has_caught(seen.answer)


def _searchable(question: Question) -> tuple[Need, ...]:
    """The needs that a search can serve; a verdict is concluded."""
    return tuple(need for need in question.truth.needs if need.kind != "verdict")


def _sources(duty: ImplicitNeed) -> tuple[str, ...]:
    return duty.document_ids if duty.kind == "stated" else duty.convention_ids


def _name(need: Need) -> str:
    return need.subject_id.replace("-", " ")


def _criterion(name: str, true_score: TrueScore, **words: str) -> Criterion:
    """The criterion of that name in criteria.json, with its words filled in."""
    draft = _RUBRICS[name]
    texts = {"title": draft.title.format(**words), "description": draft.description.format(**words)}
    return Criterion(draft.model_copy(update=texts), true_score)


class JudgeKnobs(Settings):
    """How the judge departs from the truth; by default it does not."""

    noise: UnitScore = 0.0
    """The chance that a score is moved by one, up or down."""
    length_bias: UnitScore = 0.0
    """The chance that a stage with twice the usual text scores one more."""
    failure_rate: UnitScore = 0.0
    """The chance that a call fails."""
    latency: Annotated[float, Field(ge=0.0)] = 0.0
    """Seconds a call takes."""


WorldQuestion = Question | TableQuestion
"""A question whose truth is known."""


def true_rubrics(question: WorldQuestion) -> tuple[Rubric, ...]:
    """The true criteria of the question, in the order of the stages."""
    return tuple(table_criteria(question) if isinstance(question, TableQuestion) else criteria_of(question))


def true_scores(question: WorldQuestion, parsed: ParsedTrajectory) -> dict[Rubric, int]:
    """The score that an attempt truly deserves by each criterion of the question."""
    if isinstance(question, TableQuestion):
        shown = analysis_evidence(parsed)
        return {rubric: true_score(shown) for rubric, true_score in table_criteria(question).items()}
    evidence = Evidence.of(parsed)
    return {rubric: true_score(evidence) for rubric, true_score in criteria_of(question).items()}


class AlmanacJudge:
    """Scores by the true criteria of a world's questions, distorted by its knobs.

    The same attempt gets the same scores in any order of calls.
    """

    name = "almanac"

    def __init__(
        self,
        questions: Iterable[WorldQuestion],
        *,
        knobs: JudgeKnobs | None = None,
        seed: int = 0,
        usual_length: int = 400,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._questions: dict[str, WorldQuestion] = {query_key(question.question): question for question in questions}
        self._knobs = knobs or JudgeKnobs()
        self._seed = seed
        self._usual_length = usual_length
        self._sleep = sleep

    async def propose(self, contrast: Contrast) -> Proposal:
        """The criteria that separate the group, the best first."""
        await self._sleep(self._knobs.latency)
        if self._fails("propose", contrast.step, *(parsed.policy_text for parsed in contrast.trajectories)):
            return Proposal(failure="the judge did not answer (its failure knob is on)")
        question = self._question(contrast.question)
        provenance = Provenance(step=contrast.step, model=self.name)
        attempts = [(true_scores(question, parsed), parsed) for parsed in contrast.trajectories]
        judged = [
            (rubric, [float(scores[rubric]) for scores, parsed in attempts if parsed.happened(rubric.stage)])
            for rubric in true_rubrics(question)
        ]
        best = separating_rubrics(judged, contrast.scaffold.names)
        return Proposal(tuple(rubric.model_copy(update={"provenance": provenance}) for rubric in best))

    async def score(self, request: ScoringRequest) -> ScoringResult:
        """Scores for the rubrics that are true criteria of the question; others stay unscored."""
        await self._sleep(self._knobs.latency)
        parsed = request.parsed
        if self._fails("score", parsed.policy_text):
            return ScoringResult(failure="the judge did not answer (its failure knob is on)")
        deserved = {rubric.id: score for rubric, score in true_scores(self._question(request.question), parsed).items()}
        there = set(present_stages(parsed))
        rubric_scores = {}
        for rubric in request.rubrics:
            true_score = deserved.get(rubric.id)
            if true_score is not None and rubric.stage in there:
                text = parsed.stage_text(rubric.stage)
                score = self._distort(true_score, rubric, text)
                rubric_scores[rubric.id] = RubricScore.whole(
                    rubric.id, score, find_quote(text, key_terms(rubric.description))
                )
        return ScoringResult(rubric_scores)

    async def judge_reflections(self, task: ReflectionTask) -> tuple[CandidateScore, ...]:
        """Three dimensions for each candidate.

        They are against the true criteria that the attempt lost, not against the given scores.
        """
        await self._sleep(self._knobs.latency)
        question = self._question(task.question)
        judgement = _true_judgement(question, task.parsed)
        return judge_reflections(task._replace(judgement=judgement, rubrics=true_rubrics(question)))

    def _question(self, text: str) -> WorldQuestion:
        question = self._questions.get(query_key(text))
        if question is None:
            raise UsageError(
                f"the almanac's judge does not know the question {text[:60]!r}; give it that world's questions."
            )
        return question

    def _fails(self, *parts: object) -> bool:
        return open_generator(self._seed, "failure", *parts).random() < self._knobs.failure_rate

    def _distort(self, score: int, rubric: Rubric, text: str) -> int:
        draw = open_generator(self._seed, rubric.id, text)
        if draw.random() < self._knobs.noise:
            score += 1 if score == 0 or (score < FULL_SCORE and draw.random() < 0.5) else -1
        if len(text) >= 2 * self._usual_length and draw.random() < self._knobs.length_bias:
            score += 1
        return min(FULL_SCORE, max(0, score))


def _true_judgement(question: WorldQuestion, parsed: ParsedTrajectory) -> Judgement:
    scores = true_scores(question, parsed)
    rubric_scores = {rubric.id: RubricScore(rubric_id=rubric.id, score=score) for rubric, score in scores.items()}
    return score_trajectory(present_stages(parsed), tuple(scores), rubric_scores=rubric_scores, stages=parsed.stages)


def true_quality(question: WorldQuestion, parsed: ParsedTrajectory) -> tuple[float, ...]:
    """The weighted share of the question's true criteria that the attempt fulfils.

    A number in [0, 1] for each stage, in order; 0 for a stage that never happened.
    """
    return tuple(_true_judgement(question, parsed).score(stage) or 0.0 for stage in parsed.stages)
