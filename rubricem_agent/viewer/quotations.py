"""Where a judge's reason quotes the trajectory: the passages, found again in the policy's own words."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from rubricem_agent.viewer.api_models.trajectories import Place
from rubricem_agent.viewer.pieces import Piece
from rubricem_agent.viewer.utf16 import Utf16
from rubricem_env.domain.span import Span

_QUOTED = re.compile(r'“([^”]{2,400})”|"([^"]{2,400})"|«([^»]{2,400})»')
_MOST = 8


class Passages(NamedTuple):
    """The policy's pieces by where they begin in its text."""

    starts: Sequence[int]
    numbers: Sequence[int]
    pieces: Sequence[Piece]

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> "Passages":
        own = [(piece.start, number) for number, piece in enumerate(pieces) if piece.start >= 0]
        return cls([start for start, _ in own], [number for _, number in own], pieces)

    def place(self, start: int, end: int) -> Place | None:
        """A range of the policy's text as a place in an element; None where it begins between two of them."""
        found = bisect_right(self.starts, start) - 1
        if found < 0:
            return None
        number = self.numbers[found]
        piece = self.pieces[number]
        if start >= piece.end:
            return None
        units = Utf16(piece.text)
        last = min(end, piece.end)
        return Place(element=number, start=units.at(start - piece.start), end=units.at(last - piece.start))

    def begin(self, start: int) -> Place | None:
        """Where something begins: in an element, or at the start of the next one."""
        found = self.place(start, start)
        following = bisect_right(self.starts, start)
        if found is None and following < len(self.starts):
            return Place(element=self.numbers[following], start=0, end=0)
        return found


def find_quotations(reason: str, policy_text: str, *, spans: Sequence[Span], passages: Passages) -> tuple[Place, ...]:
    """The quoted passages of a reason, each where it first stands: in the stage's spans, or else anywhere."""
    places = []
    for groups in _QUOTED.findall(reason)[:_MOST]:
        quoted = next(filter(None, groups)).strip().rstrip("….")
        start = _find(quoted, policy_text, spans)
        place = passages.place(start, start + len(quoted)) if start >= 0 and quoted else None
        if place is not None and place not in places:
            places.append(place)
    return tuple(places)


def _find(quoted: str, text: str, spans: Sequence[Span]) -> int:
    for span in spans:
        found = text.find(quoted, span.start, span.end)
        if found >= 0:
            return found
    return text.find(quoted)
