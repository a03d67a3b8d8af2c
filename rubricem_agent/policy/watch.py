"""Watches a turn while it is written, and says when to stop: a complete action, a copied tool answer, a loop."""

from rubricem_agent.policy.base import TurnEnd
from rubricem_env.scaffold.parser import parse_turn
from rubricem_env.scaffold.stream import EmissionStream

PERIOD = 200
"""The longest loop that is noticed, in characters."""
LOOP_SPAN = 1_600
"""How much text must be nothing but that loop."""
_CHECK_EVERY = 400


class TurnWatch:
    """One turn in the making."""

    def __init__(self) -> None:
        self._stream = EmissionStream()
        self._tail = ""
        self._unchecked = 0

    def feed(self, piece: str) -> TurnEnd | None:
        """Take the next piece; why the turn is over, or None as long as it is not."""
        turn = self._stream.feed(piece)
        if turn is not None:
            return TurnEnd.ACTION if turn.has_action else TurnEnd.FOREIGN
        self._tail = (self._tail + piece)[-LOOP_SPAN:]
        self._unchecked += len(piece)
        if self._unchecked < _CHECK_EVERY:
            return None
        self._unchecked = 0
        return TurnEnd.REPEATING if is_looping(self._tail) else None


def is_looping(tail: str) -> bool:
    """Whether a text of at least `LOOP_SPAN` characters is one short piece over and over."""
    if len(tail) < LOOP_SPAN:
        return False
    tail = tail[-LOOP_SPAN:]
    period = tail.find(tail[:PERIOD], 1)
    return 0 < period <= PERIOD and tail[period:] == tail[:-period]


def kept_length(text: str) -> int:
    """How much of a turn's text the episode keeps: up to the end of its action, or to tool output of its own making."""
    return parse_turn(text).end
