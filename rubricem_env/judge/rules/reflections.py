"""Reflections judged by rules: what of the evaluators' complaints they name, how concrete they are, how far they carry."""

import re

from rubricem_env.domain.judgement import StageScore, Verdict
from rubricem_env.domain.reflection import ReflectionScore
from rubricem_env.domain.rubric import Polarity, Rubric
from rubricem_env.domain.stage import STAGES
from rubricem_env.judge.reflecting import EMPTY, ReflectionFindings, ReflectionOpinion, ReflectionTask
from rubricem_env.judge.rules.terms import cover, find_quote, key_terms
from rubricem_env.judge.scoring import fulfillment

_TAKEAWAYS = re.compile(r"<reflection_takeaways>(.*?)(?:</reflection_takeaways>|\Z)", re.S | re.I)
_GENERIC = re.compile(
    r"\b(?:be|do)\s+(?:more\s+)?(?:thorough|careful|better|comprehensive|specific)\b|\bbest practices?\b|\bhigh[- ]quality\b",
    re.I,
)
_LESSON = re.compile(r"^\s*(?:[-*•]|\d+[.)])?\s*(\S.*)$", re.M)
NAMES_A_FAULT = 0.34
"""The share of a complaint's key terms from which a reflection is taken to name it."""


def judge_reflections(task: ReflectionTask) -> ReflectionFindings:
    """One opinion for each candidate, in order; an empty one has zeros."""
    return tuple(
        _judge(task, text) if text.strip() else ReflectionOpinion(EMPTY, "the candidate is empty")
        for text in task.candidates
    )


def _judge(task: ReflectionTask, text: str) -> ReflectionOpinion:
    faults = _faults(task)
    named = [rubric.title for rubric in faults if cover(key_terms(f"{rubric.title}"), text).share >= NAMES_A_FAULT]
    generic = min(1.0, len(_GENERIC.findall(text)) / 3)
    question = key_terms(task.question)
    # Without a complaint to find, an analysis that speaks of the question at all is as right as rules can tell.
    diagnosis = len(named) / len(faults) if faults else cover(question, text).share
    specificity = max(0.0, min(1.0, cover(question, text).share / 0.5) - generic)
    score = ReflectionScore(
        diagnosis=diagnosis, specificity=specificity, scope=_scope(text, set(question), generic=generic)
    )
    told = (
        f"names {len(named)} of {len(faults)} faults ({', '.join(named[:3]) or 'none'}): {find_quote(text, question)}"
    )
    return ReflectionOpinion(score, told)


def _faults(task: ReflectionTask) -> list[Rubric]:
    """The criteria that the attempt did not fulfil, worst and weightiest first; at most five."""
    verdicts: dict[str, Verdict] = {}
    for stage in STAGES:
        outcome = task.judgement.outcome(stage)
        if isinstance(outcome, StageScore):
            verdicts |= {verdict.rubric_id: verdict for verdict in outcome.verdicts}
    known = [rubric for rubric in task.rubrics if rubric.id in verdicts]
    lost = {rubric.id: rubric.weight * (1 - fulfillment(rubric, verdicts[rubric.id].score)) for rubric in known}
    # A flaw's title describes the flaw, a quality's title what was missing: either is what a reflection should name.
    faults = [rubric for rubric in known if lost[rubric.id] > 0]
    return sorted(faults, key=lambda r: (-lost[r.id], r.polarity is Polarity.POSITIVE, r.id))[:5]


def _scope(text: str, question: set[str], *, generic: float) -> float:
    """Lessons that differ from each other and do not hang on this question's names."""
    found = _TAKEAWAYS.search(text)
    lessons = [set(key_terms(line)) for line in _LESSON.findall(found[1])] if found else []
    lessons = [lesson for lesson in lessons if len(lesson) > 2]
    if not lessons:
        return 0.0
    portable = sum(len(lesson - question) / len(lesson) for lesson in lessons) / len(lessons)
    distinct = len(set().union(*lessons)) / sum(len(lesson) for lesson in lessons)
    variety = min(1.0, len(lessons) / 2)
    return max(0.0, portable * distinct * variety - generic / 2)
