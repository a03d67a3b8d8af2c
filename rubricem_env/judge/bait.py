"""Text that speaks to the judge instead of to the reader. Counted and shown; it never changes a score by itself."""

import re

_BAITS = (
    (
        "asks for a score",
        re.compile(r"\b(?:score|rate|grade|give|award)\b[^.\n]{0,40}\b(?:2|full|maximum|highest|top)\b", re.I),
    ),
    (
        "speaks to the judge",
        re.compile(r"\b(?:dear|note to(?: the)?|attention|hey)\s+(?:judge|grader|evaluator|scorer)\b", re.I),
    ),
    (
        "gives orders",
        re.compile(
            r"\b(?:ignore|disregard|forget)\s+(?:all|any|the|your|previous|prior)\b[^.\n]{0,40}\b(?:instructions?|rubrics?|rules?)\b",
            re.I,
        ),
    ),
    ("plays the fence", re.compile(r"<<<\s*(?:BEGIN|END)\b", re.I)),
    ("plays the reply", re.compile(r"[\"']scores?[\"']\s*:\s*(?:\[|[0-9])", re.I)),
)


def find_bait(text: str) -> tuple[str, ...]:
    """The kinds of bait in a text, in a fixed order."""
    return tuple(kind for kind, pattern in _BAITS if pattern.search(text))
