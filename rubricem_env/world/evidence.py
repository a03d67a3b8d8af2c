"""What one attempt at an almanac question shows: the texts that a criterion looks at."""

import re
from collections import Counter
from typing import NamedTuple

from rubricem_env.domain.stage import Stage
from rubricem_env.domain.trajectory import Origin
from rubricem_env.scaffold.reading import Reading

# The address in a snippet's head, which the environment writes; a page that names another page proves nothing.
_PAGE = re.compile(r'<snippet id="[^"]+">[^\n]*?https://almanac\.example/(\w+)\n')
_TAG = re.compile(r"<[^<>]*>")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n")


class Evidence(NamedTuple):
    """An attempt, ready to be held against the truth. Tags are taken out of the policy's texts."""

    plan: str
    review: str
    answer: str
    sentences: tuple[str, ...]
    """Of the answer."""
    shown_pages: frozenset[str]
    """Ids of the documents that tools have shown. Only the environment's text counts."""
    repeated_calls: int
    known_citations: int
    unknown_citations: int

    @classmethod
    def of(cls, reading: Reading) -> "Evidence":
        answer = _TAG.sub(" ", reading.answer or "")
        calls = Counter(turn.call.identity for turn in reading.turns if turn.call is not None)
        shown = (segment.text for segment in reading.trajectory.segments if segment.origin is Origin.TOOL)
        return cls(
            plan=_TAG.sub(" ", reading.stage_text(Stage.PLAN)),
            review=_TAG.sub(" ", reading.stage_text(Stage.REVIEW)),
            answer=answer,
            sentences=tuple(_SENTENCE_END.split(answer)),
            shown_pages=frozenset(page for text in shown for page in _PAGE.findall(text)),
            repeated_calls=sum(times - 1 for times in calls.values()),
            known_citations=len(reading.citations.known),
            unknown_citations=len(reading.citations.unknown),
        )

    def has_shown(self, documents: tuple[str, ...]) -> bool:
        """Whether a tool has shown any of the documents."""
        return not self.shown_pages.isdisjoint(documents)
