"""What can be read off a review: whether it checks its requirements one by one, and against evidence that exists."""

from rubricem_env.domain.stage import Stage
from rubricem_env.judge.rules.check import Check, Marked
from rubricem_env.judge.rules.facts import Facts
from rubricem_env.judge.rules.terms import cover, find_quote, key_terms


def review_checks(subject: str) -> tuple[Check, ...]:
    """The rules of the Review stage."""
    return (
        Check(
            Stage.REVIEW,
            "Checks what the question asked, point by point",
            f"The audit goes through each thing that the question turns on: {subject}.",
            _audits_question,
            weight=3.0,
        ),
        Check(
            Stage.REVIEW,
            "Names the evidence behind its verdicts",
            f"The audit on {subject} names at least two snippets that a tool has shown; one is partial.",
            _names_evidence,
        ),
        Check(
            Stage.REVIEW,
            "Writing plan serves the requirements",
            f"The writing plan has a place for each requirement that the plan stated on {subject}.",
            _plans_writing,
        ),
    )


def _audits_question(facts: Facts) -> Marked:
    text = facts.section(Stage.REVIEW, "rubric_review")
    covered = cover(facts.question_terms, text)
    missing = f"; not checked: {', '.join(covered.missing[:6])}" if covered.missing else ""
    return Marked(covered.mark(0.8, 0.4), f"{find_quote(text, covered.found)}{missing}")


def _names_evidence(facts: Facts) -> Marked:
    text = facts.reading.stage_text(Stage.REVIEW)
    known = facts.known_ids(text)
    told = ", ".join(known[:6]) or "no shown snippet"
    return Marked(min(2, len(known)), f"names {told}: {find_quote(text, [i.casefold() for i in known])}")


def _plans_writing(facts: Facts) -> Marked:
    text = facts.section(Stage.REVIEW, "writing_plan")
    wanted = [item for item in facts.requirements if cover(key_terms(item), text).share >= 0.5]
    total = len(facts.requirements)
    if not total:
        # Without requirements of its own the question is what the writing plan has to serve.
        covered = cover(facts.question_terms, text)
        return Marked(covered.mark(0.8, 0.4), find_quote(text, covered.found))
    share = len(wanted) / total
    mark = 2 if share >= 0.8 else int(share >= 0.4)
    return Marked(mark, f"{len(wanted)} of {total} requirements have a place: {find_quote(text, facts.question_terms)}")
