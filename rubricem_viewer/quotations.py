"""Locates in the policy's own text what a judge's reason quotes."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_viewer.api.trajectories import Passage
from rubricem_viewer.element_segments import ElementSegment
from rubricem_viewer.utf16 import count_units

_QUOTED = re.compile(r'“([^”]{2,400})”|"([^"]{2,400})"|«([^»]{2,400})»')

_MOST = 8


class PolicyPiece(NamedTuple):
    """An element that the policy wrote, with its number among all elements."""

    number: int
    element: ElementSegment


def select_policy_pieces(pieces: Sequence[ElementSegment]) -> Sequence[PolicyPiece]:
    """The elements that the policy wrote, by where they begin in its text."""
    return [PolicyPiece(number, piece) for number, piece in enumerate(pieces) if piece.start >= 0]


def locate(policy_pieces: Sequence[PolicyPiece], start: int, end: int) -> Passage | None:
    """A range of the policy's text as a passage of an element; None where it begins between two of them."""
    for number, element in policy_pieces:
        if element.start <= start < element.end:
            first = count_units(element.text[: start - element.start])
            last = count_units(element.text[: min(end, element.end) - element.start])
            return Passage(element=number, start=first, end=last)
    return None


def find_quotations(
    reason: str, parsed: ParsedTrajectory, stage: str, *, policy_pieces: Sequence[PolicyPiece]
) -> tuple[Passage, ...]:
    """The quoted passages of a reason, each where it first stands: in the stage, or else anywhere."""
    passages = []
    text = parsed.policy_text
    within = parsed.spans.get(stage)
    for groups in _QUOTED.findall(reason)[:_MOST]:
        quoted = next(filter(None, groups)).strip().rstrip("….")
        start = text.find(quoted, within.start, within.end) if within else -1
        start = text.find(quoted) if start < 0 else start
        passage = locate(policy_pieces, start, start + len(quoted)) if start >= 0 and quoted else None
        if passage is not None and passage not in passages:
            passages.append(passage)
    return tuple(passages)
