"""Text that speaks to the judge instead of to the reader. Counted and shown; it never changes a score by itself."""

import re

# Narrow on purpose: "the interest rate was 2 %" and "the top score of the match" are ordinary sentences.
_ASKS = (
    r"\b(?:score|rate|grade|mark)\s+(?:this|it|me|my|each|every|everything|all)\b[^.\n]{0,40}"
    r"\b(?:2|full|maximum|highest|top)\b"
    r"|\bscore\s+(?:of\s+)?2\s+(?:on|for|in)\s+(?:every|all|each)"
    r"|\b(?:give|award|assign|deserves?)\b[^.\n]{0,30}\b(?:full|maximum|highest|top)\s+(?:marks?|scores?|points?|rating)\b"
)
_BAITS = (
    ("asks for a score", re.compile(_ASKS, re.I)),
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
