"""The elements of one emission while it is read: which are open, which are done, and what was wrong with them.

No name is open twice, so that the stack stays as short as the grammar and every tag costs the same.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rubricem_env.scaffold.grammar import TAGS, Role
from rubricem_env.scaffold.lexer import Token
from rubricem_env.scaffold.turn import Block
from rubricem_env.scaffold.violations import Code, Violation, violation


class _Mark(NamedTuple):
    """How things stood when a tag was opened that turns all after it into plain text, should it be closed."""

    open: dict[str, Token]
    seen: int
    blocks: int
    sections: int
    violations: int


class Elements:
    """Blocks, sections and actions of one emission."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._open: dict[str, Token] = {}
        """Outermost first."""
        self._marks: dict[str, _Mark] = {}
        self._seen: list[Token] = []
        self._blocks: list[Block] = []
        self._sections: list[Block] = []
        """Done, of blocks that are still open."""
        self._begun: set[tuple[str, int]] = set()
        self.violations: list[Violation] = []

    @property
    def is_inside_any(self) -> bool:
        return bool(self._open)

    @property
    def is_inside_block(self) -> bool:
        return any(token.role is Role.BLOCK for token in self._open.values())

    def is_open(self, name: str) -> bool:
        return name in self._open

    def is_inside(self, name: str, outer: str) -> bool:
        """Whether both are open, `name` inside `outer`."""
        return name in self._open and outer in self._open and self._open[outer].start < self._open[name].start

    def opener(self, name: str) -> Token:
        """The tag that opened `name`, which must be open."""
        return self._open[name]

    def in_order(self) -> tuple[Block, ...]:
        """All blocks that are done, by their place in the text."""
        return tuple(sorted(self._blocks, key=lambda block: block.start))

    def note(self, code: Code, token: Token | None = None) -> None:
        tag, start = ("", 0) if token is None else (token.tag, token.start)
        self.violations.append(violation(code, self._number, tag, start))

    def see(self, token: Token) -> None:
        """Remember a tag, for `rewind`."""
        self._seen.append(token)

    def add(self, opening: Token, inner_end: int, end: int, *, is_closed: bool) -> Block:
        """A block without sections: a thought or an action."""
        block = Block(opening.name, opening.start, opening.end, inner_end, end, is_closed)
        self._blocks.append(block)
        return block

    def open(self, token: Token) -> None:
        """Open an element inside those that are open; a tool call that was open is a mention then."""
        if self.is_open(token.name):
            self.forget(token.name, Code.UNCLOSED_TAG)
        if token.role in (Role.ACTION, Role.FOREIGN):
            sizes = (len(self._seen), len(self._blocks), len(self._sections), len(self.violations))
            self._marks[token.name] = _Mark(dict(self._open), *sizes)
        else:
            self._note_duplicate(token)
        self._open[token.name] = token

    def _note_duplicate(self, token: Token) -> None:
        parent = TAGS[token.name].parent
        key = (token.name, self.opener(parent).start if parent else -1)
        if key in self._begun:
            self.note(Code.DUPLICATE_BLOCK, token)
        self._begun.add(key)

    def forget(self, name: str, code: Code) -> None:
        """It was a mention: what was opened after it stands."""
        self.note(code, self._open.pop(name))

    def rewind(self, token: Token) -> Sequence[Token]:
        """Undo all that came after this tag, and the tag; return the tags after it."""
        mark = self._marks[token.name]
        self._open = dict(mark.open)
        del self._blocks[mark.blocks :], self._sections[mark.sections :], self.violations[mark.violations :]
        return self._seen[mark.seen :]

    def close_section(self, closing: Token) -> None:
        below, opening, above = self._around(closing.name)
        self._drop(above, opening.start)
        first = _unclosed_from(below, (Role.SECTION,))
        self._end(below[first:], opening.start)
        self._add_section(opening, closing.start, closing.end, is_closed=True)
        self._keep(below[:first])

    def close_block(self, closing: Token) -> None:
        below, opening, above = self._around(closing.name)
        sections = [token for token in above if TAGS[token.name].parent == opening.name]
        self._end(sections, closing.start)
        inside = self._take_sections(opening, closing.start)
        self._drop([token for token in above if token not in sections], opening.start)
        first = _unclosed_from(below, (Role.BLOCK, Role.SECTION))
        self._end(below[first:], opening.start)
        self._add_block(opening, closing.start, closing.end, inside, is_closed=True)
        self._keep(below[:first])

    def end_all(self, at: int) -> None:
        """Nothing that is open will be closed: each ends where the next one begins, the last at `at`."""
        self._end(list(self._open.values()), at)
        self._open = {}

    def _around(self, name: str) -> tuple[list[Token], Token, list[Token]]:
        """What was open before `name`, its opening tag, and what was opened after it."""
        tokens = list(self._open.values())
        place = list(self._open).index(name)
        return tokens[:place], tokens[place], tokens[place + 1 :]

    def _keep(self, tokens: Sequence[Token]) -> None:
        self._open = {token.name: token for token in tokens}

    def _drop(self, mentions: Sequence[Token], start: int) -> None:
        """What was opened inside an element that closes first was no structure, nor was anything in it."""
        for token in mentions:
            self.note(Code.NESTED_TAG, token)
        for done in (self._blocks, self._sections):
            place = _begun_after(start, done)
            for block in done[place:]:
                self.violations.append(violation(Code.NESTED_TAG, self._number, f"<{block.name}>", block.start))
            del done[place:]

    def _end(self, tokens: Sequence[Token], at: int) -> None:
        """Leave elements unclosed: each ends where the next one begins, be that open still or done."""
        section_end = block_end = at
        for token in reversed(tokens):
            self.note(Code.UNCLOSED_TAG, token)
            if token.role is Role.SECTION:
                section_end = _first_start(self._sections, token.start, section_end)
                self._add_section(token, section_end, section_end, is_closed=False)
            else:
                block_end = _first_start(self._blocks, token.start, block_end)
            if token.role is Role.BLOCK:
                inside = self._take_sections(token, block_end)
                self._add_block(token, block_end, block_end, inside, is_closed=False)
            section_end = token.start
            if token.role is not Role.SECTION:
                block_end = token.start

    def _add_section(self, opening: Token, inner_end: int, end: int, *, is_closed: bool) -> None:
        inner_end = max(opening.end, inner_end)
        self._sections.append(Block(opening.name, opening.start, opening.end, inner_end, end, is_closed))

    def _take_sections(self, opening: Token, end: int) -> tuple[Block, ...]:
        """The sections of a block that ends, out of those that are done."""
        place = _begun_after(opening.start, self._sections)
        own = [part for part in self._sections[place:] if TAGS[part.name].parent == opening.name and part.start < end]
        del self._sections[place:]
        return tuple(sorted(own, key=lambda part: part.start))

    def _add_block(
        self, opening: Token, inner_end: int, end: int, sections: tuple[Block, ...], *, is_closed: bool
    ) -> None:
        inner_end = max(opening.end, inner_end)
        self._blocks.append(Block(opening.name, opening.start, opening.end, inner_end, end, is_closed, sections))


def _begun_after(start: int, done: Sequence[Block]) -> int:
    """The place of the first that began after `start`; those are the last ones."""
    place = len(done)
    while place and done[place - 1].start > start:
        place -= 1
    return place


def _first_start(done: Sequence[Block], after: int, limit: int) -> int:
    return min([limit, *(block.start for block in done[_begun_after(after, done) :])])


def _unclosed_from(tokens: Sequence[Token], roles: Sequence[Role]) -> int:
    """Where the last tags begin that have one of these roles: a tag that closes after them leaves them unclosed."""
    first = len(tokens)
    while first and tokens[first - 1].role in roles:
        first -= 1
    return first
