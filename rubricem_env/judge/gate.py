"""Which proposed rubrics are let in: a rubric is a short criterion, not a page's text and not an order to the judge."""

import re
from collections.abc import Callable, Iterable, Sequence

from rubricem_env.domain.rubric import Rubric
from rubricem_env.domain.trajectory import Origin
from rubricem_env.scaffold.reading import Reading

MAX_TITLE_CHARS = 120
MAX_DESCRIPTION_CHARS = 600
COPIED_WORDS = 12
"""So many words in a row from a tool's page are a copy, not a criterion."""

_WORD = re.compile(r"\w+")
_URL = re.compile(r"https?://|\bwww\.", re.IGNORECASE)
_TAG = re.compile(r"</?[a-z_|\\]|<<<|```|\[/?INST\]", re.IGNORECASE)
# Rubrics about the judging itself, about bare wording, or in the voice of an instruction.
_META = re.compile(
    r"\b(?:contains?|includes?|uses?|mentions?|repeats?)\s+the\s+(?:exact\s+)?(?:phrase|words?|string|token|sentence)\b"
    r"|\b(?:the|this)\s+(?:judge|grader|evaluator|scorer)\b"
    r"|\b(?:full|maximum|highest|top)\s+(?:marks?|scores?|points?)\b"
    r"|\bscores?\s+(?:of\s+)?[0-9]\b|\b(?:always|must)\s+(?:be\s+)?(?:scored?|rated?|given|award(?:ed)?)\b"
    r"|\b(?:ignore|disregard|override)\s+(?:all|any|the|your|previous|prior)\b"
    r"|\b(?:xml|tags?)\s+(?:is|are)\s+(?:present|used|closed)\b",
    re.IGNORECASE,
)
_CHECKS: Sequence[tuple[str, Callable[[Rubric], object]]] = (
    ("has no title or no description", lambda r: not (r.title.strip() and r.description.strip())),
    ("is too long", lambda r: len(r.title) > MAX_TITLE_CHARS or len(r.description) > MAX_DESCRIPTION_CHARS),
    ("holds a web address", lambda r: _URL.search(f"{r.title} {r.description}")),
    ("holds a tag or a delimiter", lambda r: _TAG.search(f"{r.title} {r.description}")),
    ("is about wording, tags or the judging itself", lambda r: _META.search(f"{r.title} {r.description}")),
)


class CopiedText:
    """What tools have shown to a group, word for word: what a rubric must not repeat at length."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = tuple(texts)

    @classmethod
    def from_readings(cls, readings: Iterable[Reading]) -> "CopiedText":
        texts = {
            segment.text
            for reading in readings
            for segment in reading.trajectory.segments
            if segment.origin is Origin.TOOL
        }
        return cls(f" {' '.join(_words(text))} " for text in texts)

    def is_in(self, rubric: Rubric) -> bool:
        words = _words(rubric.description)
        runs = (words[place : place + COPIED_WORDS] for place in range(len(words) - COPIED_WORDS + 1))
        return any(f" {' '.join(run)} " in text for run in runs for text in self._texts)


def refuse_rubric(rubric: Rubric, copied: CopiedText) -> str | None:
    """Why the rubric is not let in; None where it is."""
    fault = next((reason for reason, holds in _CHECKS if holds(rubric)), None)
    if fault is None and copied.is_in(rubric):
        fault = f"copies {COPIED_WORDS} words in a row from a page"
    return fault and f"{rubric.stage.value} rubric {rubric.title[:60]!r} {fault}"


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
