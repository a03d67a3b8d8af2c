"""Which proposed rubrics are let in: a rubric is a short criterion, not a page's text and not an order to the judge."""

import re
from collections.abc import Callable, Sequence

from rubricem_env.domain.rubric import Rubric
from rubricem_env.scaffold.shown_text import COPIED_WORDS, ShownText

MAX_TITLE_CHARS = 120
MAX_DESCRIPTION_CHARS = 600
_URL = re.compile(r"https?://|\bwww\.", re.IGNORECASE)
_TAG = re.compile(r"</?[a-z_|\\]|<<<|```|\[/?INST\]", re.IGNORECASE)
_MARK = r"(?:marks?|scores?|points?|credit|ratings?|grades?|preference|benefit)"
_GIVEN = r"\b(?:always|must)\s+(?:be\s+)?given\b"
"""Of marks it is an order to the judge; of figures, which have to be given with a year, it is a criterion."""
# Rubrics about the judging itself, about bare wording, or in the voice of an instruction.
_META = re.compile(
    r"\b(?:contains?|includes?|uses?|mentions?|repeats?)\s+the\s+(?:exact\s+)?(?:phrase|words?|string|token|sentence)\b"
    r"|\b(?:the|this)\s+(?:judge|grader|evaluator|scorer)\b"
    r"|\b(?:full|maximum|highest|top)\s+(?:marks?|scores?|points?)\b"
    r"|\bscores?\s+(?:of\s+)?[0-9]\b|\b(?:always|must)\s+(?:be\s+)?(?:scored?|rated?|award(?:ed)?)\b"
    rf"|{_GIVEN}[^.]*\b{_MARK}\b|\b{_MARK}\b[^.]*{_GIVEN}"
    rf"|{_GIVEN}\s+(?:[0-2]|zero|one|two)(?=\s*(?:[.,;:!]|$)|\s+(?:if|when|whenever|for|to)\b)"
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


def refuse_rubric(rubric: Rubric, shown: ShownText) -> str | None:
    """Why the rubric is not let in; None where it is."""
    fault = next((reason for reason, holds in _CHECKS if holds(rubric)), None)
    if fault is None and (shown.find_copy(rubric.title) or shown.find_copy(rubric.description)):
        fault = f"copies {COPIED_WORDS} words in a row from a page"
    return fault and f"{rubric.stage.value} rubric {rubric.title[:60]!r} {fault}"
