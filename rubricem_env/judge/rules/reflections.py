"""Scores reflections by rule: the lost rubrics that they name, how concrete they are, how far their lessons carry."""

import re

from rubricem_env.domain.judgement import Rubric, RubricScore, StageScore
from rubricem_env.domain.reflection import ReflectionScore
from rubricem_env.judge.reflections import EMPTY, CandidateScore, ReflectionTask
from rubricem_env.judge.rules.key_terms import covered_share, find_quote, key_terms
from rubricem_env.judge.scoring import fulfillment

_TAKEAWAYS = re.compile(r"<reflection_takeaways>(.*?)(?:</reflection_takeaways>|\Z)", re.S | re.I)
_GENERIC = re.compile(
    r"\b(?:be|do)\s+(?:more\s+)?(?:thorough|careful|better|comprehensive|specific)\b|\bbest practices?\b"
    r"|\bhigh[- ]quality\b",
    re.I,
)
_LESSON = re.compile(r"^\s*(?:[-*•]|\d+[.)])?\s*(\S.*)$", re.M)
NAMES_A_FAULT = 0.34
"""A reflection names a lost rubric if it has this share of the key terms of the rubric's title."""


def judge_reflections(task: ReflectionTask) -> tuple[CandidateScore, ...]:
    """One score for each candidate, in order; an empty candidate scores 0."""
    empty = CandidateScore(EMPTY, "the candidate is empty")
    return tuple(_judge(task, text) if text.strip() else empty for text in task.candidates)


def _judge(task: ReflectionTask, text: str) -> CandidateScore:
    faults = _faults(task)
    named = [rubric.title for rubric in faults if covered_share(key_terms(rubric.title), text) >= NAMES_A_FAULT]
    generic = min(1.0, len(_GENERIC.findall(text)) / 3)
    question = key_terms(task.question)
    about = covered_share(question, text)
    # Without a lost rubric, rules can only tell whether the analysis speaks of the question.
    diagnosis = len(named) / len(faults) if faults else about
    specificity = max(0.0, min(1.0, about / 0.5) - generic)
    score = ReflectionScore(
        diagnosis=diagnosis, specificity=specificity, scope=_scope(text, set(question), generic=generic)
    )
    why = f"names {len(named)} of {len(faults)} faults ({', '.join(named[:3]) or 'none'}): {find_quote(text, question)}"
    return CandidateScore(score, why)


def _faults(task: ReflectionTask) -> list[Rubric]:
    """The rubrics that the attempt lost score by, the greatest loss first; at most five."""
    scored: dict[str, RubricScore] = {}
    for stage in task.judgement.stages:
        outcome = task.judgement.outcome(stage)
        if isinstance(outcome, StageScore):
            scored |= {score.rubric_id: score for score in outcome.rubric_scores}
    known = [rubric for rubric in task.rubrics if rubric.id in scored]
    lost = {rubric.id: rubric.weight * (1 - fulfillment(rubric, scored[rubric.id].rounded)) for rubric in known}
    # The title of a flaw names the flaw, that of a quality what was missing; a reflection should name either.
    faults = [rubric for rubric in known if lost[rubric.id] > 0]
    return sorted(faults, key=lambda r: (-lost[r.id], r.polarity == "positive", r.id))[:5]


def _scope(text: str, question: set[str], *, generic: float) -> float:
    """How far lessons differ from each other and do without this question's names."""
    match = _TAKEAWAYS.search(text)
    lessons = [set(key_terms(line)) for line in _LESSON.findall(match[1])] if match else []
    lessons = [lesson for lesson in lessons if len(lesson) > 2]
    if not lessons:
        return 0.0
    portable = sum(len(lesson - question) / len(lesson) for lesson in lessons) / len(lessons)
    distinct = len(set().union(*lessons)) / sum(len(lesson) for lesson in lessons)
    return max(0.0, portable * distinct * min(1.0, len(lessons) / 2) - generic / 2)
