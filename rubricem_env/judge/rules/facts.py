"""What the rules know of one attempt: facts of the policy's own text and of how its calls went.

Tool pages are never read: only the ids of the snippets that they showed, and the status of each call.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from rubricem_env.domain.stage import Stage
from rubricem_env.domain.tool import ToolCall, ToolStatus
from rubricem_env.domain.trajectory import Origin
from rubricem_env.judge.rules.terms import key_terms, plain_text
from rubricem_env.scaffold.citations import find_citations, shown_snippets
from rubricem_env.scaffold.grammar import PLAN, REVIEW, STATE_EVALUATION
from rubricem_env.scaffold.reading import Reading

_ITEM = re.compile(r"^\s*(?:[-*•]|\(?\d+[.)]|\[[ xX]?\])\s*(?P<item>\S.*)$", re.M)
_SNIPPET_ID = re.compile(r"\b[A-Za-z]{1,8}_[\w-]+\b")
_CLAUSE_END = re.compile(r"[;\n]|\.(?=\s|$)")
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)")


class Attempt(NamedTuple):
    """One call and how it went."""

    call: ToolCall
    status: ToolStatus | None
    """None in files that do not say."""


class Facts(NamedTuple):
    """One attempt at one question."""

    question_terms: tuple[str, ...]
    reading: Reading
    attempts: tuple[Attempt, ...]
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


def _attempts(reading: Reading) -> Iterator[Attempt]:
    """The calls that were executed, as the episode recorded them; in files from elsewhere, as the policy wrote them."""
    answers = [segment for segment in reading.trajectory.segments if segment.origin is Origin.TOOL]
    records = [segment.observation for segment in answers if segment.observation is not None]
    if not records:
        yield from (Attempt(turn.call, None) for turn in reading.turns if turn.call is not None)
    for record in records:
        if record.call is not None and record.status is not None:
            yield Attempt(record.call, record.status)
