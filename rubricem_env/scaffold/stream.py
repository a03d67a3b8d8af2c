"""Watches an emission as it is generated and says when its action is complete, so that generation can stop there."""

from collections.abc import Sequence

from rubricem_env.scaffold.lexer import Scanner, Token
from rubricem_env.scaffold.parser import TurnReader
from rubricem_env.scaffold.turn import Turn


class EmissionStream:
    """One turn in the making, read as it grows: any split of the text into pieces gives the same turn.

    A closing action tag inside a thought is not the end; a stop string cannot know that.
    """

    def __init__(self, number: int = 1) -> None:
        self._scanner = Scanner()
        self._reader = TurnReader(number)
        self._pieces: list[str] = []

    def feed(self, piece: str) -> Turn | None:
        """Take the next piece; the turn once its action is complete, None as long as it is not.

        Self-written tool output ends the turn as well, without an action.
        """
        self._pieces.append(piece)
        rest = self._reader.take_all(self._scanner.feed(piece))
        return self._finish([*rest, *self._scanner.close()]) if self._reader.is_over else None

    def close(self) -> Turn:
        """The turn as far as it came, whether or not it acts."""
        return self._finish(self._reader.take_all(self._scanner.close()))

    def _finish(self, rest: Sequence[Token]) -> Turn:
        return self._reader.finish("".join(self._pieces), rest)
