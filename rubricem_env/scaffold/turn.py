"""One emission of the policy as a turn: its blocks, its action and its violations."""

from collections.abc import Iterator
from typing import NamedTuple

from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.scaffold.violation import Violation


class Block(NamedTuple):
    """A closed or unclosed element of a turn; offsets count in the turn's text."""

    name: str
    start: int
    inner_start: int
    inner_end: int
    end: int
    is_closed: bool
    """Whether the closing tag is there. If it is missing, the block ends at the next one, or with the text."""
    sections: tuple["Block", ...] = ()

    def inner(self, text: str) -> str:
        return text[self.inner_start : self.inner_end]


class Turn(NamedTuple):
    """One emission of the policy, read."""

    number: int
    """The number of the turn, from 1."""
    text: str
    blocks: tuple[Block, ...]
    """Top level, in order, up to `end`."""
    call: ToolCall | None
    """The tool call that ends the turn, if one does."""
    answer: Block | None
    """The closed answer that ends the turn, if one does."""
    end: int
    """What the turn amounts to ends here: text beyond it follows the action, or is self-written tool output."""
    violations: tuple[Violation, ...]

    @property
    def has_action(self) -> bool:
        return self.call is not None or self.answer is not None

    def named(self, name: str) -> Iterator[Block]:
        return (block for block in self.blocks if block.name == name)

    def first(self, name: str) -> Block | None:
        return next(self.named(name), None)

    def last(self, name: str) -> Block | None:
        return next((block for block in reversed(self.blocks) if block.name == name), None)
