"""The rules: each a rubric with the function that scores it."""

import re
from collections.abc import Callable, Collection

from rubricem_env.domain.base import Stage
from rubricem_env.domain.judgement import Provenance, Rubric
from rubricem_env.domain.trajectory import ToolStatus
from rubricem_env.judge.facts import Facts
from rubricem_env.judge.injections import find_injections
from rubricem_env.judge.key_terms import cover, covered_share, find_quote, key_terms, key_words, plain_text
from rubricem_env.judge.rule_tables import RULE_TABLES
from rubricem_env.scaffold.citations import find_citations

_SENTENCE_END = re.compile(r"[.!?](?:\s|$)")
RULES_VERSION = "rules-1"
_SUBJECT_WORDS = 8
Scored = tuple[int, str]
"""A score of 0, 1 or 2 with its reason, which quotes the attempt."""
Score = Callable[[Facts], Scored]
Rule = tuple[Rubric, Score]
"""A criterion with the function that scores it."""
_RULES: list[Rule] = []


def rules_for(question: str, step: int = 0) -> tuple[Rule, ...]:
    """All rules, in the order of the stages; the descriptions name the question's key terms."""
    subject = ", ".join(list(key_words(question).values())[:_SUBJECT_WORDS]) or "the question"
    provenance = Provenance(step=step, model="rules", prompt_hash=RULES_VERSION)
    return tuple(
        (
            rubric.model_copy(
                update={"description": rubric.description.format(subject=subject), "provenance": provenance}
            ),
            score,
        )
        for rubric, score in _RULES
    )


def _rule(title: str) -> Callable[[Score], Score]:
    """Makes a rule of the rubric with this title and the function that scores it."""

    def add(score: Score) -> Score:
        _RULES.append((Rubric.model_validate({"title": title, **RULE_TABLES["rules"][title]}, strict=False), score))
        return score

    return add


def score_cover(
    terms: Collection[str], text: str, *, full: float, partial: float, otherwise: str, said: str = ""
) -> Scored:
    """2, 1 or 0 by the share of the terms in the text; the reason quotes the text, or what is `said`, and names the rest."""
    found = cover(terms, text)
    rest = [term for term in terms if term not in found][:6]
    share = covered_share(terms, text)
    reason = (said or find_quote(text, found)) + (f"; {otherwise} {', '.join(rest)}" if rest else "")
    return 2 if share >= full else int(share >= partial), reason


def _cover_question(facts: Facts, text: str, *, otherwise: str) -> Scored:
    """How much of the question the text takes up."""
    return score_cover(facts.question_terms, text, full=0.8, partial=0.4, otherwise=otherwise)


def _serve_requirements(facts: Facts, text: str, what: str) -> Scored:
    """How many of the plan's requirements the text serves; there is at least one requirement."""
    total = len(facts.requirements)
    served = sum(covered_share(key_terms(item), text) >= 0.5 for item in facts.requirements)
    score = 2 if served / total >= 0.8 else int(served / total >= 0.4)
    return score, f"{served} of {total} requirements have a {what}: {find_quote(text, facts.question_terms)}"


@_rule("Analysis takes up what the question asks")
def _takes_up_question(facts: Facts) -> Scored:
    text = f"{facts.section('deep_analysis')}\n{facts.section('rubric')}"
    return _cover_question(facts, text, otherwise="not taken up:")


@_rule("Requirements are several and concrete")
def _states_requirements(facts: Facts) -> Scored:
    wanted = set(facts.question_terms)
    tied = [item for item in facts.requirements if wanted & set(key_terms(item))]
    shown = "; ".join(find_quote(item) for item in tied[:3]) or find_quote(facts.section("rubric"))
    return min(2, (len(tied) + 1) // 2), f"{len(tied)} requirements tied to the question: {shown}"


@_rule("Each requirement has a step that serves it")
def _plans_requirements(facts: Facts) -> Scored:
    steps = facts.section("research_plan")
    if not facts.requirements:
        return 0, f"no requirement is stated; the steps are {find_quote(steps)}"
    return _serve_requirements(facts, steps, "step")


@_rule("Queries aim at the question's subjects")
def _aims(facts: Facts) -> Scored:
    if not facts.queries:
        return 0, "no search was made"
    text, said = " . ".join(facts.queries), _list_queries(facts)
    return score_cover(facts.question_terms, text, full=0.75, partial=0.35, otherwise="no search names", said=said)


@_rule("Each search asks something new")
def _asks_anew(facts: Facts) -> Scored:
    if not facts.calls:
        return 0, "no search was made"
    repeats = len(facts.calls) - len({call.identity for call, _ in facts.calls})
    reason = f"{repeats} of {len(facts.calls)} searches repeat an earlier one: {_list_queries(facts)}"
    return max(0, 2 - repeats), reason


@_rule("Results are weighed by name")
def _weighs(facts: Facts) -> Scored:
    results = sum(status is None or not status.is_error for _, status in facts.calls)
    if not results:
        return 0, "no search brought a result to weigh"
    naming = [text for text in facts.evaluations if facts.known_ids(text)]
    share = len(naming) / results
    quote = find_quote(naming[0] if naming else " ".join(facts.evaluations))
    reason = f"{len(naming)} evaluations for {results} results name a snippet: {quote}"
    return 2 if share >= 0.75 else int(share > 0), reason


@_rule("Leaves a failed search unanswered")
def _gives_up(facts: Facts) -> Scored:
    """The worst of the failed searches; a flaw, so 0 is good."""
    worst = 0, f"no search was left failed: {_list_queries(facts)}"
    for index, (call, status) in enumerate(facts.calls):
        if status in (None, ToolStatus.OK):
            continue
        later = [after for other, after in facts.calls[index + 1 :] if other.identity != call.identity]
        score = 2 if not later else int(all(after is not ToolStatus.OK for after in later))
        if score > worst[0]:
            worst = score, f"after “{call.query[:120]}” ended as {status}, {len(later)} other searches followed"
    return worst


def _list_queries(facts: Facts) -> str:
    return "; ".join(f"“{query[:80]}”" for query in facts.queries[:4]) or "no search was made"


@_rule("Checks what the question asked, point by point")
def _audits_question(facts: Facts) -> Scored:
    return _cover_question(facts, facts.section("rubric_review"), otherwise="not checked:")


@_rule("Names the evidence behind its verdicts")
def _names_evidence(facts: Facts) -> Scored:
    text = facts.parsed.stage_text(Stage.REVIEW)
    known = facts.known_ids(text)
    names = ", ".join(known[:6]) or "no shown snippet"
    return min(2, len(known)), f"names {names}: {find_quote(text, [i.casefold() for i in known])}"


@_rule("Writing plan serves the requirements")
def _plans_writing(facts: Facts) -> Scored:
    text = facts.section("writing_plan")
    if not facts.requirements:
        # Without requirements the writing plan has to serve the question itself.
        return _cover_question(facts, text, otherwise="no place for")
    return _serve_requirements(facts, text, "place")


@_rule("Answers each part of the question")
def _answers(facts: Facts) -> Scored:
    return _cover_question(facts, facts.stage_text(Stage.ANSWER), otherwise="no word of")


@_rule("Claims carry citations that resolve")
def _cites(facts: Facts) -> Scored:
    answer = facts.parsed.answer or ""
    sentences = len(_SENTENCE_END.findall(plain_text(answer))) or int(bool(answer))
    resolving = sum(any(i in facts.parsed.shown for i in citation.ids) for citation in find_citations(answer))
    share = resolving / sentences if sentences else 0.0
    quote = find_quote(facts.stage_text(Stage.ANSWER))
    return 2 if share >= 0.5 else int(share > 0), f"{resolving} resolving citations in {sentences} sentences: {quote}"


@_rule("Cites what was never shown")
def _invents_citations(facts: Facts) -> Scored:
    unknown, known = facts.parsed.citations.unknown, len(facts.parsed.citations.known)
    if not unknown:
        return 0, f"all {known} cited snippets were shown"
    return 1 if len(unknown) < known else 2, f"never shown: {', '.join(unknown[:6])}"


@_rule("Breaks off")
def _breaks_off(facts: Facts) -> Scored:
    ending = facts.stage_text(Stage.ANSWER).strip()[-100:]
    return 0 if facts.parsed.is_complete else 2, f"the answer ends with “{ending}”"


@_rule("Speaks to whoever rates it")
def _addresses_judge(facts: Facts) -> Scored:
    text = facts.stage_text(Stage.ANSWER)
    kinds = find_injections(text)
    return 2 if kinds else 0, f"{', '.join(kinds) or 'speaks to the reader'}: {find_quote(text)}"
