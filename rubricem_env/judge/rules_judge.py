"""The judge that needs no model: rules propose what separates the group, and score it with a quotation.

The rules read the policy's own text and the status of its calls. They never read tool pages, only the ids of the
snippets that were shown. What they know of meaning is key terms: stems of content words.

A rubric in free words is scored by the share of its key terms that a stage covers: crude, but deterministic. Reflections
are scored by the lost rubrics that they name, by how concrete they are, and by how far their lessons carry.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.inputs import package_text
from rubricem_env.domain.judgement import Provenance, ReflectionScore, Rubric, RubricScore, StageScore
from rubricem_env.domain.trajectory import ToolCall, ToolStatus
from rubricem_env.judge.base import (
    EMPTY,
    CandidateScore,
    Contrast,
    Proposal,
    ReflectionTask,
    ScoringRequest,
    ScoringResult,
    present_stages,
)
from rubricem_env.judge.prompting import find_injections
from rubricem_env.judge.rubrics import refuse_rubric
from rubricem_env.judge.scoring import fulfillment, separating_rubrics
from rubricem_env.scaffold.citations import find_citations
from rubricem_env.scaffold.claims import answered_calls, is_same_query
from rubricem_env.scaffold.copies import ShownText
from rubricem_env.scaffold.grammar import PARENTS, PLAN, STATE_EVALUATION
from rubricem_env.scaffold.parsed import ParsedTrajectory

_WORD = re.compile(r"[^\W_]+(?:[.,:/-][^\W_]+)*")
_TAG = re.compile(r"<[^<>]*>")
_SENTENCE = re.compile(r"[^.!?\n]+(?:\.\d[^.!?\n]*)*[.!?]?")
_SUFFIXES = ("ations", "ation", "ings", "ing", "ies", "ied", "ed", "es", "s")
_MIN_STEM = 4
QUOTE_CHARS = 160

_TABLES: Mapping[str, Any] = json.loads(package_text("rubricem_env.judge", "rules.json"))
"""The rules' rubrics by title, and words that carry no content of a question or a criterion."""
_EMPTY_WORDS = frozenset(_TABLES["empty_words"].split())


def plain_text(text: str) -> str:
    """The text without its tags."""
    return _TAG.sub(" ", text)


def key_terms(text: str) -> tuple[str, ...]:
    """Content words and figures as stems, each once, in order of first use."""
    return tuple(key_words(text))


def key_words(text: str) -> dict[str, str]:
    """The key terms, each with the word that it first came from."""
    words: dict[str, str] = {}
    for word in _WORD.findall(plain_text(text)):
        plain = word.casefold()
        if plain not in _EMPTY_WORDS and (len(plain) > 2 or any(char.isdigit() for char in plain)):
            words.setdefault(_stem(plain), word)
    return words


def cover(terms: Iterable[str], text: str) -> tuple[str, ...]:
    """The terms that the text contains, each once; a stem is found where a word has it."""
    there = set(key_terms(text))
    return tuple(dict.fromkeys(term for term in terms if term in there))


def covered_share(terms: Collection[str], text: str) -> float:
    """The share of the terms that the text contains; 1.0 where there are no terms."""
    return len(cover(terms, text)) / len(set(terms)) if terms else 1.0


def find_quote(text: str, terms: Iterable[str] = ()) -> str:
    """The first sentence with the most terms, in quotation marks and truncated."""
    sentences = [found.strip() for found in _SENTENCE.findall(plain_text(text)) if found.strip()]
    if not sentences:
        return "nothing is written there"
    wanted = set(terms)
    best = max(sentences, key=lambda sentence: len(wanted & set(key_terms(sentence))))
    return f"“{best if len(best) <= QUOTE_CHARS else best[: QUOTE_CHARS - 1] + '…'}”"


def _stem(word: str) -> str:
    if any(char.isdigit() for char in word):
        return word
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _MIN_STEM:
            return word[: -len(suffix)]
    return word


_ITEM = re.compile(r"^\s*(?:[-*•]|\(?\d+[.)]|\[[ xX]?\])\s*(?P<item>\S.*)$", re.M)
_SNIPPET_ID = re.compile(r"\b[A-Za-z]{1,8}_[\w-]+\b")
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)")


class Facts(NamedTuple):
    """One attempt at one question."""

    question_terms: tuple[str, ...]
    parsed: ParsedTrajectory
    calls: tuple[tuple[ToolCall, ToolStatus | None], ...]
    """Each executed call with its status; None in files that do not say."""

    def stage_text(self, stage: Stage) -> str:
        return plain_text(self.parsed.stage_text(stage))

    def section(self, name: str) -> str:
        """One section of the first plan or the last review; empty where it was not written."""
        blocks = [(block, turn.text) for turn in self.parsed.turns for block in turn.named(PARENTS[name])]
        for block, text in blocks[:1] if PARENTS[name] == PLAN else blocks[-1:]:
            return next((section.inner(text) for section in block.sections if section.name == name), "")
        return ""

    @property
    def requirements(self) -> tuple[str, ...]:
        """The items of the plan's own rubric; its lines, where it is not a list."""
        text = self.section("rubric")
        items = [found["item"].strip() for found in _ITEM.finditer(text)] or [
            line.strip() for line in text.splitlines()
        ]
        return tuple(dict.fromkeys(item for item in items if len(key_terms(item)) > 1))

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(call.query for call, _ in self.calls)

    @property
    def evaluations(self) -> tuple[str, ...]:
        """The state evaluations, in order."""
        return tuple(block.inner(turn.text) for turn in self.parsed.turns for block in turn.named(STATE_EVALUATION))

    def known_ids(self, text: str) -> tuple[str, ...]:
        """Shown snippets that the text names."""
        return tuple(dict.fromkeys(found for found in _SNIPPET_ID.findall(text) if found in self.parsed.shown))


def gather_facts(question: str, parsed: ParsedTrajectory) -> Facts:
    """The facts of one attempt."""
    return Facts(question_terms=key_terms(question), parsed=parsed, calls=tuple(_calls(parsed)))


def _calls(parsed: ParsedTrajectory) -> Iterator[tuple[ToolCall, ToolStatus | None]]:
    """The executed calls as the episode recorded them; in files from elsewhere, as the policy wrote them.

    A record of a call that the policy did not write is a file's own claim and counts as the policy's call, if any.
    """
    answers = list(answered_calls(parsed))
    if all(segment.observation is None for segment, _ in answers):
        yield from ((turn.call, None) for turn in parsed.turns if turn.call is not None)
    for segment, written in answers:
        record = segment.observation
        if record is not None and record.call is not None and record.status is not None and written is not None:
            yield record.call if is_same_query(record.call, written) else written, record.status


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
        _RULES.append((Rubric.model_validate({"title": title, **_TABLES["rules"][title]}, strict=False), score))
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


_TAKEAWAYS = re.compile(r"<reflection_takeaways>(.*?)(?:</reflection_takeaways>|\Z)", re.S | re.I)
_GENERIC = re.compile(
    r"\b(?:be|do)\s+(?:more\s+)?(?:thorough|careful|better|comprehensive|specific)\b|\bbest practices?\b|\bhigh[- ]quality\b",
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
    for stage in STAGES:
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
    found = _TAKEAWAYS.search(text)
    lessons = [set(key_terms(line)) for line in _LESSON.findall(found[1])] if found else []
    lessons = [lesson for lesson in lessons if len(lesson) > 2]
    if not lessons:
        return 0.0
    portable = sum(len(lesson - question) / len(lesson) for lesson in lessons) / len(lessons)
    distinct = len(set().union(*lessons)) / sum(len(lesson) for lesson in lessons)
    return max(0.0, portable * distinct * min(1.0, len(lessons) / 2) - generic / 2)


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
    terms = key_terms(rubric.description.partition(_TERMS_MARK)[2] or rubric.description)
    text = facts.stage_text(rubric.stage)
    score, reason = score_cover(terms, text, full=FULL_SHARE, partial=PARTIAL_SHARE, otherwise="without")
    return score if terms else 0, f"{len(cover(terms, text))} of {len(terms)} key terms: {reason}"


def pooled_rules(group: Sequence[Facts], rules: Sequence[Rule]) -> Iterator[Rule]:
    """Rules of whether later stages serve the dimensions that at least two of the group's plans named.

    The agents' own rubrics are only a reference: no attempt is scored by its own rubric. Weight and provenance are those
    of the given rules.
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
    description = f"The stage serves dimensions that more than one plan named; {_TERMS_MARK} {listed}."
    for stage, title in POOLED_STAGES.items():
        rubric = Rubric(
            stage=stage, title=title, description=description, weight=2.0, provenance=rules[0][0].provenance
        )
        yield rubric, partial(score_by_terms, rubric)


class RulesJudge:
    """Deterministic and offline. It reads what the policy wrote, never the pages, and follows no instruction in them."""

    name = "rules"

    async def propose(self, contrast: Contrast) -> Proposal:
        """The checks on which the group's attempts differ, those that separate it best first."""
        group = [gather_facts(contrast.question, parsed) for parsed in contrast.trajectories]
        shown = ShownText.in_trajectories(parsed.trajectory for parsed in contrast.trajectories)
        rules = rules_for(contrast.question, contrast.step)
        rated = [
            (rubric, [float(score(facts)[0]) for facts in group if facts.parsed.happened(rubric.stage)])
            for rubric, score in (*rules, *pooled_rules(group, rules))
        ]
        drafts = tuple(separating_rubrics(rated))
        faults = [refuse_rubric(draft, shown, question=contrast.question) for draft in drafts]
        admitted = tuple(draft for draft, fault in zip(drafts, faults, strict=True) if not fault)
        return Proposal(admitted, refused=tuple(filter(None, faults)))

    async def score(self, request: ScoringRequest) -> ScoringResult:
        """Scores for every rubric of a stage that happened: by its rule, or by its key terms where it has none."""
        facts = gather_facts(request.question, request.parsed)
        rules = {rubric.id: score for rubric, score in rules_for(request.question)}
        there = set(present_stages(request.parsed))
        rubric_scores = {}
        for rubric in request.rubrics:
            if rubric.stage in there:
                score, reason = rules.get(rubric.id, partial(score_by_terms, rubric))(facts)
                rubric_scores[rubric.id] = RubricScore.whole(rubric.id, score, reason)
        return ScoringResult(rubric_scores)

    async def judge_reflections(self, task: ReflectionTask) -> tuple[CandidateScore, ...]:
        """Three dimensions for each candidate, against the rubrics that the judgement lost."""
        return judge_reflections(task)
