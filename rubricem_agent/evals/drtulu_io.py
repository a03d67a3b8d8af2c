"""The predecessor's answer extraction and citation conversion, needed to read its published numbers.

Both are lossy on purpose: a box is taken even out of a long report, and it ends at the first closing brace.
"""

import re
from typing import NamedTuple

_THOUGHT_END = "</think>"
_BOX = "\\boxed{"
# A backslash-b that a string literal turned into the backspace character is read as the box that it was meant to be.
_BROKEN_BOX = "\boxed{"
# Only the singular attribute: text cited with ids= stays as it is. A tag inside the cited text stops the match.
_CITATION = re.compile(r'<cite id="(?P<ids>[^"]+)">(?P<claim>[^<]+)</cite>')


class CitedText(NamedTuple):
    """Text with [id] marks, the ids by first appearance, and the claims made with each."""

    text: str
    ids: list[str]
    claims_by_id: dict[str, list[str]]


def extract_answer(generated: str) -> str:
    """Thoughts off, then the first answer block, then the first box; each only where it is there."""
    answer = generated
    if _THOUGHT_END in answer:
        answer = "".join(answer.split(_THOUGHT_END)[1:]).strip()
    if "<answer>" in answer:
        # Up to the next opening tag, so that an unclosed first block does not swallow the second.
        answer = answer.split("<answer>")[1].partition("</answer>")[0].strip()
    answer = answer.replace(_BROKEN_BOX, _BOX)
    if _BOX in answer:
        answer = answer.split(_BOX)[1].partition("}")[0].strip()
    return answer


def convert_citations(text: str) -> CitedText:
    """Every cite tag as ". claim [id] [id]."; ids are split at commas and not stripped."""
    claims_by_id: dict[str, list[str]] = {}

    def mark(citation: re.Match[str]) -> str:
        ids = citation["ids"].split(",")
        for each in ids:
            claims_by_id.setdefault(each, []).append(citation["claim"])
        return f". {citation['claim']} {' '.join(f'[{each}]' for each in ids)}."

    marked = _CITATION.sub(mark, text)
    return CitedText(marked, list(claims_by_id), claims_by_id)
