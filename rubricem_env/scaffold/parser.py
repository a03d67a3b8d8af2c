"""Parses one emission of the policy into one turn. Never raises: any text is a turn, with violations."""

from collections.abc import Sequence

from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.scaffold.grammar import DEFAULT
from rubricem_env.scaffold.lexer import Scanner, Token, find_structure
from rubricem_env.scaffold.regular_turn import read_regular_turn
from rubricem_env.scaffold.turn import Turn
from rubricem_env.scaffold.turn_reader import TurnReader


def parse_turn(text: str, number: int = 1, scaffold: Scaffold = DEFAULT) -> Turn:
    """Read one emission; `number` is its number in the trajectory, from 1."""
    return read_regular_turn(text, number, scaffold) or read_any_turn(text, number, scaffold)


def read_any_turn(text: str, number: int = 1, scaffold: Scaffold = DEFAULT) -> Turn:
    """Read any emission, tag by tag."""
    reader = TurnReader(number, scaffold)
    return reader.finish(text, reader.take_all(find_structure(text, scaffold)))


class EmissionStream:
    """Reads a turn while it is generated: any split of the text into pieces gives the same turn.

    A closing action tag inside a thought is not the end of the turn; stop strings cannot tell.
    """

    def __init__(self, number: int = 1, scaffold: Scaffold = DEFAULT) -> None:
        self._scanner = Scanner(scaffold)
        self._reader = TurnReader(number, scaffold)
        self._pieces: list[str] = []

    def feed(self, piece: str) -> Turn | None:
        """Take the next piece; returns the turn once its action is complete, and None before.

        Self-written tool output ends the turn as well, without an action.
        """
        self._pieces.append(piece)
        rest = self._reader.take_all(self._scanner.feed(piece))
        return self._finish([*rest, *self._scanner.close()]) if self._reader.is_over else None

    def close(self) -> Turn:
        """The turn of the text so far, with or without an action."""
        return self._finish(self._reader.take_all(self._scanner.close()))

    def _finish(self, rest: Sequence[Token]) -> Turn:
        return self._reader.finish("".join(self._pieces), rest)
