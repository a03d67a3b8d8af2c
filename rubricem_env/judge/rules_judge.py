"""The judge that needs no model: rules propose what separates the group, and score it with a quotation.

A rubric in free words is scored by the share of its key terms that a stage covers: crude, but deterministic. Reflections
are scored by the lost rubrics that they name, by how concrete they are, and by how far their lessons carry.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.judgement import ReflectionScore, Rubric, StageScore, Verdict
from rubricem_env.judge.base import (
    EMPTY,
    Contrast,
    Findings,
    Proposal,
    ReflectionFindings,
    ReflectionOpinion,
    ReflectionTask,
    ScoringRequest,
    present_stages,
)
from rubricem_env.judge.rubrics import refuse_rubric
from rubricem_env.judge.rules import (
    Check,
    Facts,
    Scored,
    checks_for,
    cover,
    find_quote,
    gather_facts,
    key_terms,
    key_words,
)
from rubricem_env.judge.scoring import Opinion, fulfillment, mark_variance
from rubricem_env.scaffold.untrusted import ShownText

_TAKEAWAYS = re.compile(r"<reflection_takeaways>(.*?)(?:</reflection_takeaways>|\Z)", re.S | re.I)
_GENERIC = re.compile(
    r"\b(?:be|do)\s+(?:more\s+)?(?:thorough|careful|better|comprehensive|specific)\b|\bbest practices?\b|\bhigh[- ]quality\b",
    re.I,
)
_LESSON = re.compile(r"^\s*(?:[-*•]|\d+[.)])?\s*(\S.*)$", re.M)
NAMES_A_FAULT = 0.34
"""A reflection names a lost rubric if it has this share of the key terms of the rubric's title."""


def judge_reflections(task: ReflectionTask) -> ReflectionFindings:
    """One opinion for each candidate, in order; an empty candidate scores 0."""
    return tuple(
        _judge(task, text) if text.strip() else ReflectionOpinion(EMPTY, "the candidate is empty")
        for text in task.candidates
    )


def _judge(task: ReflectionTask, text: str) -> ReflectionOpinion:
    faults = _faults(task)
    named = [rubric.title for rubric in faults if cover(key_terms(rubric.title), text).share >= NAMES_A_FAULT]
    generic = min(1.0, len(_GENERIC.findall(text)) / 3)
    question = key_terms(task.question)
    # Without a lost rubric, rules can only tell whether the analysis speaks of the question.
    diagnosis = len(named) / len(faults) if faults else cover(question, text).share
    specificity = max(0.0, min(1.0, cover(question, text).share / 0.5) - generic)
    score = ReflectionScore(
        diagnosis=diagnosis, specificity=specificity, scope=_scope(text, set(question), generic=generic)
    )
    why = f"names {len(named)} of {len(faults)} faults ({', '.join(named[:3]) or 'none'}): {find_quote(text, question)}"
    return ReflectionOpinion(score, why)


def _faults(task: ReflectionTask) -> list[Rubric]:
    """The rubrics that the attempt lost score by, the greatest loss first; at most five."""
    verdicts: dict[str, Verdict] = {}
    for stage in STAGES:
        outcome = task.judgement.outcome(stage)
        if isinstance(outcome, StageScore):
            verdicts |= {verdict.rubric_id: verdict for verdict in outcome.verdicts}
    known = [rubric for rubric in task.rubrics if rubric.id in verdicts]
    lost = {rubric.id: rubric.weight * (1 - fulfillment(rubric, verdicts[rubric.id].score)) for rubric in known}
    # The title of a flaw names the flaw, that of a quality what was missing; a reflection should name either.
    faults = [rubric for rubric in known if lost[rubric.id] > 0]
    return sorted(faults, key=lambda r: (-lost[r.id], r.polarity == "positive", r.id))[:5]


def _scope(text: str, question: set[str], *, generic: float) -> float:
    """How far lessons differ from each other and do without this question's names."""
    found = _TAKEAWAYS.search(text)
    lessons = [set(key_terms(line)) for line in _LESSON.findall(found[1])] if found else []
    lessons = [lesson for lesson in lessons if len(lesson) > 2]
    if not lessons:
        return 0.0
    portable = sum(len(lesson - question) / len(lesson) for lesson in lessons) / len(lessons)
    distinct = len(set().union(*lessons)) / sum(len(lesson) for lesson in lessons)
    variety = min(1.0, len(lessons) / 2)
    return max(0.0, portable * distinct * variety - generic / 2)


FULL_SHARE, PARTIAL_SHARE = 2 / 3, 1 / 3
MAX_POOLED_TERMS = 6
POOLED_STAGES = MappingProxyType(
    {
        Stage.RESEARCH: "Looks into what several plans required",
        Stage.REVIEW: "Checks what several plans required",
        Stage.ANSWER: "Covers what several plans required",
    }
)
_TERMS_MARK = "key terms:"


def score_by_terms(rubric: Rubric, facts: Facts) -> Scored:
    """2 where two thirds of the rubric's key terms are in the stage, 1 where one third is.

    The terms are those listed after "key terms:" in the description, or else all of its content words.
    """
    listed = rubric.description.partition(_TERMS_MARK)[2] or rubric.description
    text = facts.stage_text(rubric.stage)
    covered = cover(key_terms(listed), text)
    total = len(covered.found) + len(covered.missing)
    missing = f"; without {', '.join(covered.missing[:6])}" if covered.missing else ""
    reason = f"{len(covered.found)} of {total} key terms: {find_quote(text, covered.found)}{missing}"
    return covered.mark(FULL_SHARE, PARTIAL_SHARE) if total else 0, reason


def pooled_checks(group: Sequence[Facts]) -> tuple[Check, ...]:
    """Checks of whether later stages serve the dimensions that at least two of the group's plans named.

    The agents' own rubrics are only a reference: no attempt is scored by its own rubric.
    """
    words: dict[str, str] = {}
    named: Counter[str] = Counter()
    for facts in group:
        own = key_words("\n".join(facts.requirements))
        words = {**own, **words}
        named.update(set(own) - set(facts.question_terms))
    shared = sorted((term for term, times in named.items() if times > 1), key=lambda term: (-named[term], term))
    if not shared:
        return ()
    listed = ", ".join(words[term] for term in shared[:MAX_POOLED_TERMS])
    description = f"The stage serves dimensions that more than one plan named; {_TERMS_MARK} {listed}."
    return tuple(_pooled(stage, title, description=description) for stage, title in POOLED_STAGES.items())


def _pooled(stage: Stage, title: str, *, description: str) -> Check:
    rubric = Rubric(stage=stage, title=title, description=description)
    return Check(stage, title, description, lambda facts: score_by_terms(rubric, facts))


MAX_PER_STAGE = 4
_SUBJECT_WORDS = 8


class RulesJudge:
    """Deterministic and offline. It reads what the policy wrote, never the pages, and follows no instruction in them."""

    name = "rules"

    async def propose(self, contrast: Contrast) -> Proposal:
        """The checks on which the group's attempts differ, those that separate it best first."""
        group = [gather_facts(contrast.question, reading) for reading in contrast.readings]
        shown = ShownText.in_trajectories(reading.trajectory for reading in contrast.readings)
        chosen: list[Rubric] = []
        refused: list[str] = []
        checks = (*_checks_of(contrast.question), *pooled_checks(group))
        for stage in STAGES:
            there = [facts for facts in group if facts.reading.happened(stage)]
            variances = {c.title: _variance(c, there) for c in checks if c.stage is stage}
            own = [check for check in checks if check.stage is stage and variances[check.title] > 0]
            own.sort(key=lambda check: (-variances[check.title], -check.weight, check.title))
            for check in own[:MAX_PER_STAGE]:
                rubric = check.rubric(contrast.step)
                fault = refuse_rubric(rubric, shown)
                chosen += [] if fault else [rubric]
                refused += [fault] if fault else []
        return Proposal(tuple(chosen), refused=tuple(refused))

    async def score(self, examination: ScoringRequest) -> Findings:
        """Scores for every rubric of a stage that happened: by its rule, or by its key terms where it has none."""
        facts = gather_facts(examination.question, examination.reading)
        rules: Mapping[str, Check] = {check.rubric().id: check for check in _checks_of(examination.question)}
        there = set(present_stages(examination.reading))
        opinions = {}
        for rubric in examination.rubrics:
            if rubric.stage in there:
                rule = rules.get(rubric.id)
                score, reason = rule.score(facts) if rule else score_by_terms(rubric, facts)
                opinions[rubric.id] = Opinion.whole(rubric.id, score, reason)
        return Findings(opinions)

    async def judge_reflections(self, task: ReflectionTask) -> ReflectionFindings:
        """Three dimensions for each candidate, against the rubrics that the judgement lost."""
        return judge_reflections(task)


def _checks_of(question: str) -> tuple[Check, ...]:
    subject = ", ".join(list(key_words(question).values())[:_SUBJECT_WORDS]) or "the question"
    return checks_for(subject)


def _variance(check: Check, group: Sequence[Facts]) -> float:
    return mark_variance([float(check.score(facts)[0]) for facts in group])
