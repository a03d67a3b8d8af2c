"""The rules: each a rubric with the function that scores it."""

import re
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import NamedTuple

from rubricem_env.domain.base import Stage
from rubricem_env.domain.judgement import Provenance, Rubric
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.scale import FULL_SCORE, PARTIAL_SCORE, score_of_share
from rubricem_env.domain.trajectory import ToolStatus
from rubricem_env.judge.injections import find_injections
from rubricem_env.judge.rules.facts import Facts
from rubricem_env.judge.rules.key_terms import cover, covered_share, find_quote, key_terms, key_words, plain_text
from rubricem_env.judge.rules.tables import RULE_TABLES
from rubricem_env.scaffold.citations import find_citations
from rubricem_env.scaffold.grammar import DEFAULT, MAX_SCAFFOLDS, grammar_of

_SENTENCE_END = re.compile(r"[.!?](?:\s|$)")
RULES_VERSION = "rules-1"
_SUBJECT_WORDS = 8


class Scored(NamedTuple):
    """A score with its reason, which quotes the attempt."""

    score: int
    reason: str


ScoringFunction = Callable[[Facts], Scored]


class Rule(NamedTuple):
    """A rubric with the function that scores it."""

    rubric: Rubric
    score: ScoringFunction


class _Template(NamedTuple):
    """A rule before its question is known."""

    rule: Rule
    needs: frozenset[str]
    """The tags that it reads."""


_RULES: list[_Template] = []


def rules_for(question: str, step: int = 0, scaffold: Scaffold = DEFAULT) -> tuple[Rule, ...]:
    """All rules that a scaffold's tags allow, in the order of the stages; they name the question's key terms.

    A stage before the answer that no rule reads has one of its own: whether it takes up the question.
    """
    subject = ", ".join(list(key_words(question).values())[:_SUBJECT_WORDS]) or "the question"
    provenance = Provenance(step=step, model="rules", prompt_hash=RULES_VERSION)
    rules = []
    for rule in _rules_of(scaffold):
        description = rule.rubric.description.format(subject=subject)
        rubric = rule.rubric.model_copy(update={"description": description, "provenance": provenance})
        rules.append(Rule(rubric, rule.score))
    return tuple(rules)


@lru_cache(maxsize=MAX_SCAFFOLDS)
def _rules_of(scaffold: Scaffold) -> tuple[Rule, ...]:
    tags = grammar_of(scaffold).roles.keys()
    rules = []
    for (rubric, score), needs in _RULES:
        stage = scaffold.last if rubric.stage == Stage.ANSWER else rubric.stage
        if needs <= tags and stage in scaffold.names:
            rules.append(Rule(rubric.model_copy(update={"stage": stage}), score))
    read = {rule.rubric.stage for rule in rules}
    rules += [_takes_up(stage) for stage in scaffold.names if stage not in read]
    return tuple(sorted(rules, key=lambda rule: scaffold.position(rule.rubric.stage)))


def _takes_up(stage: str) -> Rule:
    """The rule of a stage that no other rule reads."""
    shown = stage.replace("_", " ")
    rubric = Rubric(
        stage=stage,
        title=f"The {shown} takes up what the question asks",
        description=f"The {shown} speaks of each thing that the question turns on: {{subject}}.",
        weight=3.0,
    )
    return Rule(rubric, lambda facts: _cover_question(facts, facts.stage_text(stage), otherwise="not taken up:"))


def _rule(title: str) -> Callable[[ScoringFunction], ScoringFunction]:
    """Makes a rule of the rubric with this title and the function that scores it."""

    def add(score: ScoringFunction) -> ScoringFunction:
        row = dict(RULE_TABLES["rules"][title])
        needs = frozenset(row.pop("needs", ()))
        rubric = Rubric.model_validate({"title": title, **row}, strict=False)
        _RULES.append(_Template(Rule(rubric, score), needs))
        return score

    return add


def score_cover(
    terms: Collection[str], text: str, *, full: float, partial: float, otherwise: str, said: str = ""
) -> Scored:
    """The score by the share of the terms in the text.

    The reason quotes the text, or what is `said`, and names the terms that are not there.
    """
    covered = cover(terms, text)
    rest = [term for term in terms if term not in covered][:6]
    share = covered_share(terms, text)
    reason = (said or find_quote(text, covered)) + (f"; {otherwise} {', '.join(rest)}" if rest else "")
    return Scored(score_of_share(share, full=full, partial=partial), reason)


def _score_of_positive_share(share: float, *, full: float) -> int:
    """The full score from the share `full` on, the partial score for any share above 0."""
    if share >= full:
        return FULL_SCORE
    return PARTIAL_SCORE if share > 0 else 0


def _cover_question(facts: Facts, text: str, *, otherwise: str) -> Scored:
    """How much of the question the text takes up."""
    return score_cover(facts.question_terms, text, full=0.8, partial=0.4, otherwise=otherwise)


def _serve_requirements(facts: Facts, text: str, what: str) -> Scored:
    """How many of the plan's requirements the text serves; there is at least one requirement."""
    total = len(facts.requirements)
    served = sum(covered_share(key_terms(item), text) >= 0.5 for item in facts.requirements)
    score = score_of_share(served / total, full=0.8, partial=0.4)
    return Scored(score, f"{served} of {total} requirements have a {what}: {find_quote(text, facts.question_terms)}")


@_rule("Analysis takes up what the question asks")
def _takes_up_question(facts: Facts) -> Scored:
    text = f"{facts.section('deep_analysis')}\n{facts.section('rubric')}"
    return _cover_question(facts, text, otherwise="not taken up:")


@_rule("Requirements are several and concrete")
def _states_requirements(facts: Facts) -> Scored:
    wanted = set(facts.question_terms)
    tied = [item for item in facts.requirements if wanted & set(key_terms(item))]
    shown = "; ".join(find_quote(item) for item in tied[:3]) or find_quote(facts.section("rubric"))
    score = min(FULL_SCORE, (len(tied) + 1) // 2)
    return Scored(score, f"{len(tied)} requirements tied to the question: {shown}")


@_rule("Each requirement has a step that serves it")
def _plans_requirements(facts: Facts) -> Scored:
    steps = facts.section("research_plan")
    if not facts.requirements:
        return Scored(0, f"no requirement is stated; the steps are {find_quote(steps)}")
    return _serve_requirements(facts, steps, "step")


@_rule("Queries aim at the question's subjects")
def _aims(facts: Facts) -> Scored:
    if not facts.queries:
        return Scored(0, "no search was made")
    return score_cover(
        facts.question_terms,
        " . ".join(facts.queries),
        full=0.75,
        partial=0.35,
        otherwise="no search names",
        said=_list_queries(facts),
    )


@_rule("Each search asks something new")
def _asks_anew(facts: Facts) -> Scored:
    if not facts.calls:
        return Scored(0, "no search was made")
    repeats = len(facts.calls) - len({call.identity for call, _ in facts.calls})
    reason = f"{repeats} of {len(facts.calls)} searches repeat an earlier one: {_list_queries(facts)}"
    return Scored(max(0, FULL_SCORE - repeats), reason)


@_rule("Results are weighed by name")
def _weighs(facts: Facts) -> Scored:
    results = sum(status is None or not status.is_error for _, status in facts.calls)
    if not results:
        return Scored(0, "no search brought a result to weigh")
    naming = [text for text in facts.evaluations if facts.known_ids(text)]
    share = len(naming) / results
    quote = find_quote(naming[0] if naming else " ".join(facts.evaluations))
    reason = f"{len(naming)} evaluations for {results} results name a snippet: {quote}"
    return Scored(_score_of_positive_share(share, full=0.75), reason)


@_rule("Leaves a failed search unanswered")
def _gives_up(facts: Facts) -> Scored:
    """The worst of the failed searches; a flaw, so 0 is good."""
    worst = Scored(0, f"no search was left failed: {_list_queries(facts)}")
    for index, (call, status) in enumerate(facts.calls):
        if status in (None, ToolStatus.OK):
            continue
        later = [after for other, after in facts.calls[index + 1 :] if other.identity != call.identity]
        if not later:
            score = FULL_SCORE
        elif ToolStatus.OK not in later:
            score = PARTIAL_SCORE
        else:
            score = 0
        if score > worst.score:
            reason = f"after “{call.query[:120]}” ended as {status}, {len(later)} other searches followed"
            worst = Scored(score, reason)
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
    quote = find_quote(text, [snippet_id.casefold() for snippet_id in known])
    return Scored(min(FULL_SCORE, len(known)), f"names {names}: {quote}")


@_rule("Writing plan serves the requirements")
def _plans_writing(facts: Facts) -> Scored:
    text = facts.section("writing_plan")
    if not facts.requirements:
        # Without requirements the writing plan has to serve the question itself.
        return _cover_question(facts, text, otherwise="no place for")
    return _serve_requirements(facts, text, "place")


@_rule("Answers each part of the question")
def _answers(facts: Facts) -> Scored:
    return _cover_question(facts, facts.answer_text, otherwise="no word of")


@_rule("Claims carry citations that resolve")
def _cites(facts: Facts) -> Scored:
    answer = facts.parsed.answer or ""
    sentences = len(_SENTENCE_END.findall(plain_text(answer))) or int(bool(answer))
    resolving = sum(not facts.parsed.shown.isdisjoint(citation.ids) for citation in find_citations(answer))
    share = resolving / sentences if sentences else 0.0
    quote = find_quote(facts.answer_text)
    reason = f"{resolving} resolving citations in {sentences} sentences: {quote}"
    return Scored(_score_of_positive_share(share, full=0.5), reason)


@_rule("Cites what was never shown")
def _invents_citations(facts: Facts) -> Scored:
    unknown = facts.parsed.citations.unknown
    known = len(facts.parsed.citations.known)
    if not unknown:
        return Scored(0, f"all {known} cited snippets were shown")
    score = PARTIAL_SCORE if len(unknown) < known else FULL_SCORE
    return Scored(score, f"never shown: {', '.join(unknown[:6])}")


@_rule("Breaks off")
def _breaks_off(facts: Facts) -> Scored:
    ending = facts.answer_text.strip()[-100:]
    return Scored(0 if facts.parsed.is_complete else FULL_SCORE, f"the answer ends with “{ending}”")


@_rule("Speaks to whoever rates it")
def _addresses_judge(facts: Facts) -> Scored:
    text = facts.answer_text
    kinds = find_injections(text)
    return Scored(FULL_SCORE if kinds else 0, f"{', '.join(kinds) or 'speaks to the reader'}: {find_quote(text)}")
