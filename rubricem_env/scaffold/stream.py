"""Watches an emission as it is generated and says when its action is complete, so that generation can stop there."""

from rubricem_env.scaffold.grammar import TAGS, Role
from rubricem_env.scaffold.lexer import Scanner, Token
from rubricem_env.scaffold.parser import parse_turn
from rubricem_env.scaffold.turn import Turn


class EmissionStream:
    """One turn in the making. A closing action tag inside a thought is not the end; a stop string cannot know that."""

    def __init__(self, number: int = 1) -> None:
        self._number = number
        self._scanner = Scanner()
        self._pieces: list[str] = []

    def feed(self, piece: str) -> Turn | None:
        """Take the next piece; the turn once its action is complete, None as long as it is not."""
        self._pieces.append(piece)
        return self._turn_if_over(self._scanner.feed(piece))

    def close(self) -> Turn:
        """The turn as far as it came, whether or not it acts."""
        return parse_turn("".join(self._pieces), self._number)

    def _turn_if_over(self, tokens: list[Token]) -> Turn | None:
        if not any((token.closing or token.empty) and TAGS[token.name].role is Role.ACTION for token in tokens):
            return None
        turn = self.close()
        return turn if turn.has_action else None
