"""Decides whether a proposed rubric is admitted, or why it is refused."""

import re

from rubricem_env.domain.judgement import Rubric
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.scaffold.admission import find_fault
from rubricem_env.scaffold.copies import COPIED_WORDS, ShownText
from rubricem_env.scaffold.grammar import DEFAULT

MAX_TITLE_CHARS = 200
MAX_DESCRIPTION_CHARS = 1_500
"""About twice the 80 words that the prompt asks for, in a language of long words."""
_WORDING = re.compile(
    r"\b(?:contains?|includes?|repeats?|(?:begins?|ends?|starts?)\s+with)\s+the\s+(?:exact\s+)?"
    r"(?:phrase|string|token|sentence|words?)\s+[\"'“‘«](?P<quoted>[^\"'”’»]{2,})",
    re.IGNORECASE,
)
_TAGS = re.compile(r"\b(?:xml\s+)?tags?\s+(?:is|are)\s+(?:present|closed)\b", re.IGNORECASE)


def refuse_rubric(rubric: Rubric, shown: ShownText, *, question: str = "", scaffold: Scaffold = DEFAULT) -> str | None:
    """Why the proposed rubric is refused, as "code: sentence", or None.

    A rubric is a short criterion, in words of its own, that speaks of attempts. It is neither the text of a page nor an
    order to the judge.
    """

    def refuse(code: str, fault: str) -> str:
        return f"{code}: {rubric.stage} rubric {rubric.title[:60]!r} {fault}"

    if not (rubric.title.strip() and rubric.description.strip()):
        return refuse("format", "has no title or no description")
    if len(rubric.title) > MAX_TITLE_CHARS or len(rubric.description) > MAX_DESCRIPTION_CHARS:
        return refuse("too_long", "is too long")
    for text in (rubric.title, rubric.description):
        fault = find_fault(text, "criterion", shown=shown, question=question, scaffold=scaffold)
        if fault is not None:
            return refuse(fault.code, f"{fault.sentence}: {fault.shown}")
    sentences = f"{rubric.title}. {rubric.description}"
    wording = _WORDING.search(sentences)
    if _TAGS.search(sentences) or (wording and shown.mentions(wording["quoted"])):
        return refuse("wording", "is about tags, or asks for words of a page")
    if shown.find_copy(f"{rubric.title} {rubric.description}"):
        return refuse("copied", f"copies {COPIED_WORDS} words in a row from a page")
    return None
