"""What can be read off a plan: whether it understood the question, and whether its parts belong together."""

from rubricem_env.domain.stage import Stage
from rubricem_env.judge.rules.check import Check, Marked
from rubricem_env.judge.rules.facts import Facts
from rubricem_env.judge.rules.terms import cover, find_quote, key_terms


def plan_checks(subject: str) -> tuple[Check, ...]:
    """The rules of the Plan stage; `subject` is the question's key terms, for the descriptions."""
    return (
        Check(
            Stage.PLAN,
            "Analysis takes up what the question asks",
            f"The analysis and the requirements take up each thing that the question turns on: {subject}.",
            _takes_up_question,
            weight=3.0,
        ),
        Check(
            Stage.PLAN,
            "Requirements are several and concrete",
            f"The plan states at least three different requirements that are tied to {subject}; one or two are partial.",
            _states_requirements,
        ),
        Check(
            Stage.PLAN,
            "Each requirement has a step that serves it",
            f"The research plan has a step for every requirement stated about {subject}.",
            _plans_requirements,
        ),
    )


def _takes_up_question(facts: Facts) -> Marked:
    text = f"{facts.section(Stage.PLAN, 'deep_analysis')}\n{facts.section(Stage.PLAN, 'rubric')}"
    covered = cover(facts.question_terms, text)
    missing = f"; not taken up: {', '.join(covered.missing[:6])}" if covered.missing else ""
    return Marked(covered.mark(0.8, 0.4), f"{find_quote(text, covered.found)}{missing}")


def _states_requirements(facts: Facts) -> Marked:
    asked = set(facts.question_terms)
    tied = [item for item in facts.requirements if asked & set(key_terms(item))]
    shown = "; ".join(find_quote(item) for item in tied[:3]) or find_quote(facts.section(Stage.PLAN, "rubric"))
    return Marked(min(2, (len(tied) + 1) // 2), f"{len(tied)} requirements tied to the question: {shown}")


def _plans_requirements(facts: Facts) -> Marked:
    steps = facts.section(Stage.PLAN, "research_plan")
    served = [item for item in facts.requirements if cover(key_terms(item), steps).share >= 0.5]
    total = len(facts.requirements)
    if not total:
        return Marked(0, f"no requirement is stated; the steps are {find_quote(steps)}")
    share = len(served) / total
    mark = 2 if share >= 0.8 else int(share >= 0.4)
    return Marked(mark, f"{len(served)} of {total} requirements have a step: {find_quote(steps, facts.question_terms)}")
