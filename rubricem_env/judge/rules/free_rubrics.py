"""Scores a rubric in free words by its key terms, and makes rubrics of what several plans required."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from types import MappingProxyType

from rubricem_env.domain.base import Stage
from rubricem_env.domain.judgement import Rubric
from rubricem_env.judge.rules.facts import Facts
from rubricem_env.judge.rules.key_terms import cover, key_terms, key_words
from rubricem_env.judge.rules.rules import Rule, Scored, score_cover

FULL_SHARE = 2 / 3
PARTIAL_SHARE = 1 / 3
MAX_POOLED_TERMS = 6
POOLED_STAGES = MappingProxyType(
    {
        Stage.RESEARCH: "Looks into what several plans required",
        Stage.REVIEW: "Checks what several plans required",
        Stage.ANSWER: "Covers what several plans required",
    }
)
TERMS_LABEL = "key terms:"


def score_by_terms(rubric: Rubric, facts: Facts) -> Scored:
    """The full score where two thirds of the rubric's key terms are in the stage, the partial where one third is.

    The terms are those listed after "key terms:" in the description, or else all of its content words.
    """
    terms = key_terms(rubric.description.partition(TERMS_LABEL)[2] or rubric.description)
    text = facts.stage_text(rubric.stage)
    scored = score_cover(terms, text, full=FULL_SHARE, partial=PARTIAL_SHARE, otherwise="without")
    reason = f"{len(cover(terms, text))} of {len(terms)} key terms: {scored.reason}"
    return Scored(scored.score if terms else 0, reason)


def pooled_rules(group: Sequence[Facts], rules: Sequence[Rule]) -> Iterator[Rule]:
    """Rules of whether later stages serve the dimensions that at least two of the group's plans named.

    The agents' own rubrics are only a reference: no attempt is scored by its own rubric. The provenance is that of the
    given rules.
    """
    words: dict[str, str] = {}
    named: Counter[str] = Counter()
    for facts in group:
        own = key_words("\n".join(facts.requirements))
        words = {**own, **words}
        named.update(set(own) - set(facts.question_terms))
    shared = sorted((term for term, times in named.items() if times > 1), key=lambda term: (-named[term], term))
    if not shared:
        return
    listed = ", ".join(words[term] for term in shared[:MAX_POOLED_TERMS])
    description = f"The stage serves dimensions that more than one plan named; {TERMS_LABEL} {listed}."
    for stage, title in POOLED_STAGES.items():
        if stage not in group[0].parsed.stages:
            continue
        rubric = Rubric(
            stage=stage, title=title, description=description, weight=2.0, provenance=rules[0].rubric.provenance
        )
        yield Rule(rubric, partial(score_by_terms, rubric))
