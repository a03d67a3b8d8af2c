"""The judge that needs nothing: rules propose what separates the group, and mark it with a quotation."""

from collections.abc import Mapping, Sequence

from rubricem_env.domain.rubric import Rubric
from rubricem_env.domain.stage import STAGES
from rubricem_env.judge.base import Contrast, Examination, Findings, Proposal, present_stages
from rubricem_env.judge.gate import refuse_rubric
from rubricem_env.judge.opinion import Opinion
from rubricem_env.judge.reflecting import ReflectionFindings, ReflectionTask
from rubricem_env.judge.rules.answer_checks import answer_checks
from rubricem_env.judge.rules.check import Check
from rubricem_env.judge.rules.coverage import mark_by_terms, pooled_checks
from rubricem_env.judge.rules.facts import Facts, gather_facts
from rubricem_env.judge.rules.plan_checks import plan_checks
from rubricem_env.judge.rules.reflections import judge_reflections
from rubricem_env.judge.rules.research_checks import research_checks
from rubricem_env.judge.rules.review_checks import review_checks
from rubricem_env.judge.rules.terms import key_words
from rubricem_env.judge.scoring import mark_variance
from rubricem_env.scaffold.shown_text import ShownText

MAX_PER_STAGE = 4
_SUBJECT_WORDS = 8


class RulesJudge:
    """Deterministic and offline. It reads what the policy wrote, never what a page says, and obeys neither."""

    name = "rules"

    async def propose(self, contrast: Contrast) -> Proposal:
        """The checks on which the group's attempts differ, those that separate it best first."""
        group = [gather_facts(contrast.question, reading) for reading in contrast.readings]
        shown = ShownText.in_trajectories(reading.trajectory for reading in contrast.readings)
        chosen: list[Rubric] = []
        refused: list[str] = []
        checks = (*_catalogue(contrast.question), *pooled_checks(group))
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

    async def score(self, examination: Examination) -> Findings:
        """Marks for every rubric of a stage that is there: by its rule, or by its key terms where it has none."""
        facts = gather_facts(examination.question, examination.reading)
        rules: Mapping[str, Check] = {check.rubric().id: check for check in _catalogue(examination.question)}
        there = set(present_stages(examination.reading))
        opinions = {}
        for rubric in examination.rubrics:
            if rubric.stage in there:
                rule = rules.get(rubric.id)
                marked = rule.mark(facts) if rule else mark_by_terms(rubric, facts)
                opinions[rubric.id] = Opinion.whole(rubric.id, marked.mark, marked.reason)
        return Findings(opinions)

    async def judge_reflections(self, task: ReflectionTask) -> ReflectionFindings:
        """Three dimensions for each candidate, read off what the marks say went wrong."""
        return judge_reflections(task)


def _catalogue(question: str) -> tuple[Check, ...]:
    """All rules, worded for the question."""
    subject = ", ".join(list(key_words(question).values())[:_SUBJECT_WORDS]) or "the question"
    return (*plan_checks(subject), *research_checks(subject), *review_checks(subject), *answer_checks(subject))


def _variance(check: Check, group: Sequence[Facts]) -> float:
    return mark_variance([float(check.mark(facts).mark) for facts in group])
