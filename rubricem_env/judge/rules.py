"""Key terms of a text, and how much of them another text covers: all that the rules know of meaning.

What the rules know of one attempt: facts of the policy's own text and of how its calls went.

Tool pages are never read: only the ids of the snippets that they showed, and the status of each call.

One rule: a criterion that a function of the facts can mark.

What can be read off a plan: whether it understood the question, and whether its parts belong together.

What can be read off the research: whether queries differ and aim, failures are met, and results are weighed.

What can be read off a review: whether it checks its requirements one by one, and against evidence that exists.

What can be read off an answer: coverage, citations that resolve, and text that is meant for the judge.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rubricem_env.domain.base import Stage
from rubricem_env.domain.judgement import Polarity, Provenance, Rubric
from rubricem_env.domain.trajectory import Origin, ToolCall, ToolStatus
from rubricem_env.judge.prompting import find_bait
from rubricem_env.scaffold.grammar import PLAN, REVIEW, STATE_EVALUATION
from rubricem_env.scaffold.reading import Reading, find_citations, shown_snippets

_WORD = re.compile(r"[^\W_]+(?:[.,:/-][^\W_]+)*")
_TAG = re.compile(r"<[^<>]*>")
_SENTENCE = re.compile(r"[^.!?\n]+(?:\.\d[^.!?\n]*)*[.!?]?")
_SUFFIXES = ("ations", "ation", "ings", "ing", "ies", "ied", "ed", "es", "s")
_MIN_STEM = 4
QUOTE_CHARS = 160

# Words that carry no content of a question or a criterion.
_EMPTY_TEXT = """
    about above after again against all also although always among and any are around asked because been before
    being below between both but can cannot could describe did does doing done during each either every explain
    few first for from further give given had has have having here how however include including into its itself
    just least less like made make makes many may might more most much must name names need needs neither never
    not now off once one only other others our ours over own per please report same several should show since
    some state still such than that the their them then there these they this those through thus too under until
    upon use used uses using very was were what when where whether which while who whom whose why will with
    within without would you your answer answers question evidence source sources rubric rubrics review plan
    agent states stated says said mention mentions provide provides provided discuss discusses identify identifies
    identified list lists note notes clearly accurately correctly relevant response
"""
_EMPTY_WORDS = frozenset(_EMPTY_TEXT.split())


class Coverage(NamedTuple):
    """Which of some terms a text holds."""

    found: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def share(self) -> float:
        """1.0 where nothing was asked for."""
        total = len(self.found) + len(self.missing)
        return len(self.found) / total if total else 1.0

    def mark(self, full: float, partial: float) -> int:
        """2, 1 or 0 by the shares at which the term is fully and partly covered."""
        return 2 if self.share >= full else int(self.share >= partial)


def plain_text(text: str) -> str:
    """The text without its tags."""
    return _TAG.sub(" ", text)


def key_terms(text: str) -> tuple[str, ...]:
    """Content words and figures as stems, each once, in order of first use."""
    return tuple(key_words(text))


def key_words(text: str) -> dict[str, str]:
    """The key terms with the word that each first stood in, for people to read."""
    words: dict[str, str] = {}
    for word in _WORD.findall(plain_text(text)):
        if _carries_content(word.casefold()):
            words.setdefault(_stem(word.casefold()), word)
    return words


def cover(terms: Iterable[str], text: str) -> Coverage:
    """Sort the terms into found and missing; a stem counts as found where a word has it."""
    there = set(key_terms(text))
    wanted = tuple(dict.fromkeys(terms))
    return Coverage(tuple(t for t in wanted if t in there), tuple(t for t in wanted if t not in there))


def find_quote(text: str, terms: Iterable[str] = ()) -> str:
    """The sentence that holds most of the terms, the first of equals, in quotation marks and cut to a length."""
    sentences = [found.strip() for found in _SENTENCE.findall(plain_text(text)) if found.strip()]
    if not sentences:
        return "nothing is written there"
    wanted = set(terms)
    best = max(sentences, key=lambda sentence: len(wanted & set(key_terms(sentence))))
    return f"“{best if len(best) <= QUOTE_CHARS else best[: QUOTE_CHARS - 1] + '…'}”"


def _carries_content(word: str) -> bool:
    return word not in _EMPTY_WORDS and (len(word) > 2 or any(char.isdigit() for char in word))


def _stem(word: str) -> str:
    if any(char.isdigit() for char in word):
        return word
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _MIN_STEM:
            return word[: -len(suffix)]
    return word


_ITEM = re.compile(r"^\s*(?:[-*•]|\(?\d+[.)]|\[[ xX]?\])\s*(?P<item>\S.*)$", re.M)
_SNIPPET_ID = re.compile(r"\b[A-Za-z]{1,8}_[\w-]+\b")
_CLAUSE_END = re.compile(r"[;\n]|\.(?=\s|$)")
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)")


class CallRecord(NamedTuple):
    """One call and how it went."""

    call: ToolCall
    status: ToolStatus | None
    """None in files that do not say."""


class Facts(NamedTuple):
    """One attempt at one question."""

    question_terms: tuple[str, ...]
    reading: Reading
    attempts: tuple[CallRecord, ...]
    shown: frozenset[str]
    """Ids of the snippets that tools have shown."""

    def stage_text(self, stage: Stage) -> str:
        return plain_text(self.reading.stage_text(stage))

    def section(self, stage: Stage, name: str) -> str:
        """One section of the plan or the review; empty where it was not written."""
        block_name = PLAN if stage is Stage.PLAN else REVIEW
        turns = self.reading.turns if stage is Stage.PLAN else tuple(reversed(self.reading.turns))
        for turn in turns:
            block = turn.first(block_name) if stage is Stage.PLAN else turn.last(block_name)
            if block is not None:
                return next((section.inner(turn.text) for section in block.sections if section.name == name), "")
        return ""

    @property
    def requirements(self) -> tuple[str, ...]:
        """The items of the plan's own rubric; its clauses, where it is not a list."""
        text = self.section(Stage.PLAN, "rubric")
        items = [found["item"].strip() for found in _ITEM.finditer(text)] or [
            line.strip() for line in text.splitlines()
        ]
        return tuple(dict.fromkeys(item for item in items if len(key_terms(item)) > 1))

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(attempt.call.query for attempt in self.attempts)

    @property
    def evaluations(self) -> tuple[str, ...]:
        """The state evaluations, in order."""
        return tuple(block.inner(turn.text) for turn in self.reading.turns for block in turn.named(STATE_EVALUATION))

    @property
    def cited_sentences(self) -> tuple[int, int]:
        """How many sentences the answer has, and how many citations in it resolve."""
        answer = self.reading.answer or ""
        sentences = len(_SENTENCE_END.findall(plain_text(answer))) or int(bool(answer))
        resolving = sum(any(i in self.shown for i in citation.ids) for citation in find_citations(answer))
        return sentences, resolving

    def known_ids(self, text: str) -> tuple[str, ...]:
        """Shown snippets that the text names."""
        return tuple(dict.fromkeys(found for found in _SNIPPET_ID.findall(text) if found in self.shown))


def gather_facts(question: str, reading: Reading) -> Facts:
    """The facts of one attempt."""
    return Facts(
        question_terms=key_terms(question),
        reading=reading,
        attempts=tuple(_attempts(reading)),
        shown=shown_snippets(reading.trajectory.segments),
    )


def _attempts(reading: Reading) -> Iterator[CallRecord]:
    """The calls that were executed, as the episode recorded them; in files from elsewhere, as the policy wrote them."""
    answers = [segment for segment in reading.trajectory.segments if segment.origin is Origin.TOOL]
    records = [segment.observation for segment in answers if segment.observation is not None]
    if not records:
        yield from (CallRecord(turn.call, None) for turn in reading.turns if turn.call is not None)
    for record in records:
        if record.call is not None and record.status is not None:
            yield CallRecord(record.call, record.status)


RULES_VERSION = "rules-1"


class Marked(NamedTuple):
    """A mark with its reason, which quotes the attempt."""

    mark: int
    reason: str


class Check(NamedTuple):
    """A criterion with the function that marks it."""

    stage: Stage
    title: str
    description: str
    mark: Callable[[Facts], Marked]
    weight: float = 2.0
    polarity: Polarity = Polarity.POSITIVE

    def rubric(self, step: int = 0) -> Rubric:
        return Rubric(
            stage=self.stage,
            title=self.title,
            description=self.description,
            polarity=self.polarity,
            weight=self.weight,
            provenance=Provenance(step=step, model="rules", prompt_hash=RULES_VERSION),
        )


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


def research_checks(subject: str) -> tuple[Check, ...]:
    """The rules of the Research stage."""
    return (
        Check(
            Stage.RESEARCH,
            "Queries aim at the question's subjects",
            f"The searches together name every subject of the question: {subject}.",
            _aims,
            weight=3.0,
        ),
        Check(
            Stage.RESEARCH,
            "Each search asks something new",
            f"No search about {subject} repeats an earlier one; a single repetition is partial.",
            _asks_anew,
        ),
        Check(
            Stage.RESEARCH,
            "Results are weighed by name",
            f"After results on {subject}, the state evaluation says which snippet brought what.",
            _weighs,
        ),
        Check(
            Stage.RESEARCH,
            "Leaves a failed search unanswered",
            f"A search about {subject} failed or found nothing, and no different one followed; without success is partial.",
            _gives_up,
            polarity=Polarity.NEGATIVE,
        ),
    )


def _aims(facts: Facts) -> Marked:
    covered = cover(facts.question_terms, " . ".join(facts.queries))
    if not facts.queries:
        return Marked(0, "no search was made")
    missing = f"; no search names {', '.join(covered.missing[:6])}" if covered.missing else ""
    return Marked(covered.mark(0.75, 0.35), f"{_list_queries(facts)}{missing}")


def _asks_anew(facts: Facts) -> Marked:
    if not facts.attempts:
        return Marked(0, "no search was made")
    repeats = len(facts.attempts) - len({attempt.call.identity for attempt in facts.attempts})
    return Marked(
        max(0, 2 - repeats),
        f"{repeats} of {len(facts.attempts)} searches repeat an earlier one: {_list_queries(facts)}",
    )


def _weighs(facts: Facts) -> Marked:
    results = sum(1 for a in facts.attempts if a.status is None or not a.status.is_error)
    naming = [text for text in facts.evaluations if facts.known_ids(text)]
    if not results:
        return Marked(0, "no search brought a result to weigh")
    share = len(naming) / results
    quote = find_quote(naming[0]) if naming else find_quote(" ".join(facts.evaluations))
    return Marked(
        2 if share >= 0.75 else int(share > 0),
        f"{len(naming)} evaluations for {results} results name a snippet: {quote}",
    )


def _gives_up(facts: Facts) -> Marked:
    """The worst of the failed searches; a flaw, so 0 is good."""
    worst = Marked(0, f"no search was left failed: {_list_queries(facts)}")
    for place, attempt in enumerate(facts.attempts):
        if attempt.status in (None, ToolStatus.OK):
            continue
        later = [a for a in facts.attempts[place + 1 :] if a.call.identity != attempt.call.identity]
        mark = 2 if not later else int(all(a.status is not ToolStatus.OK for a in later))
        if mark > worst.mark:
            worst = Marked(
                mark,
                f"after “{attempt.call.query[:120]}” ended as {attempt.status}, {len(later)} other searches followed",
            )
    return worst


def _list_queries(facts: Facts) -> str:
    shown = "; ".join(f"“{query[:80]}”" for query in facts.queries[:4])
    return shown or "no search was made"


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


def answer_checks(subject: str) -> tuple[Check, ...]:
    """The rules of the Answer stage."""
    return (
        Check(
            Stage.ANSWER,
            "Answers each part of the question",
            f"The answer speaks of everything that was asked: {subject}.",
            _answers,
            weight=3.0,
        ),
        Check(
            Stage.ANSWER,
            "Claims carry citations that resolve",
            f"At least half of the sentences on {subject} have a citation to a snippet that a tool has shown.",
            _cites,
            weight=3.0,
        ),
        Check(
            Stage.ANSWER,
            "Cites what was never shown",
            f"Citations on {subject} name snippets that no tool has shown in this attempt; fewer than half is partial.",
            _invents_citations,
            weight=3.0,
            polarity=Polarity.NEGATIVE,
        ),
        Check(
            Stage.ANSWER,
            "Breaks off",
            f"The text on {subject} ends before the answer is closed.",
            _breaks_off,
            polarity=Polarity.NEGATIVE,
        ),
        Check(
            Stage.ANSWER,
            "Speaks to whoever rates it",
            f"Instead of {subject}, the text turns to its rater: asks for a rating, or gives it orders.",
            _baits,
            weight=3.0,
            polarity=Polarity.NEGATIVE,
        ),
    )


def _answers(facts: Facts) -> Marked:
    text = facts.stage_text(Stage.ANSWER)
    covered = cover(facts.question_terms, text)
    missing = f"; no word of {', '.join(covered.missing[:6])}" if covered.missing else ""
    return Marked(covered.mark(0.8, 0.4), f"{find_quote(text, covered.found)}{missing}")


def _cites(facts: Facts) -> Marked:
    sentences, resolving = facts.cited_sentences
    share = resolving / sentences if sentences else 0.0
    quote = find_quote(facts.stage_text(Stage.ANSWER))
    return Marked(
        2 if share >= 0.5 else int(share > 0), f"{resolving} resolving citations in {sentences} sentences: {quote}"
    )


def _invents_citations(facts: Facts) -> Marked:
    citations = facts.reading.citations
    unknown, known = len(citations.unknown), len(citations.known)
    told = f"never shown: {', '.join(citations.unknown[:6])}" if unknown else f"all {known} cited snippets were shown"
    return Marked(0 if not unknown else 1 if unknown < known else 2, told)


def _breaks_off(facts: Facts) -> Marked:
    ending = facts.stage_text(Stage.ANSWER).strip()[-100:]
    return Marked(0 if facts.reading.is_complete else 2, f"the answer ends with “{ending}”")


def _baits(facts: Facts) -> Marked:
    text = facts.stage_text(Stage.ANSWER)
    kinds = find_bait(text)
    return Marked(2 if kinds else 0, f"{', '.join(kinds) or 'speaks to the reader'}: {find_quote(text)}")
