"""Criteria in free words, marked by how much of their key terms a stage covers: crude, deterministic, and said so."""

from collections import Counter
from collections.abc import Sequence
from types import MappingProxyType

from rubricem_env.domain.rubric import Rubric
from rubricem_env.domain.stage import Stage
from rubricem_env.judge.rules.check import Check, Marked
from rubricem_env.judge.rules.facts import Facts
from rubricem_env.judge.rules.terms import cover, find_quote, key_terms, key_words

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


def mark_by_terms(rubric: Rubric, facts: Facts) -> Marked:
    """2 where two thirds of the rubric's key terms are in the stage, 1 where one third is.

    A description that lists its terms after "key terms:" is marked by these, any other by all of its content words.
    """
    listed = rubric.description.partition(_TERMS_MARK)[2] or rubric.description
    text = facts.stage_text(rubric.stage)
    covered = cover(key_terms(listed), text)
    total = len(covered.found) + len(covered.missing)
    missing = f"; without {', '.join(covered.missing[:6])}" if covered.missing else ""
    reason = f"{len(covered.found)} of {total} key terms: {find_quote(text, covered.found)}{missing}"
    return Marked(covered.mark(FULL_SHARE, PARTIAL_SHARE) if total else 0, reason)


def pooled_checks(group: Sequence[Facts]) -> tuple[Check, ...]:
    """Whether later stages serve the dimensions that at least two of the group's plans named.

    The agents' own rubrics are a reference here and not the standard: nobody is marked by a rubric of his own.
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
    return Check(stage, title, description, lambda facts: mark_by_terms(rubric, facts))
