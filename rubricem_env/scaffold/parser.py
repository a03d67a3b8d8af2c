"""One emission in, one turn out. Never raises: whatever a model writes is a turn with violations.

The rules, where the paper leaves them open (choices A9-A11):
- A thought is opaque; one that is never closed hides the rest of the turn.
- The first action that is complete, opening and closing, ends the turn. What follows it is cut.
- A tag that only occurs in passing, inside a block that closes before the tag would, is plain text.
- A block that is not closed ends where the next one begins.
- Citations shape nothing and are left to `citations`.
- Tool output that the policy writes itself cuts the turn where it begins.
"""

from bisect import bisect_right
from collections import defaultdict
from functools import cached_property

from rubricem_env.domain.tool import ToolCall
from rubricem_env.scaffold.characters import suspicious_characters
from rubricem_env.scaffold.grammar import ANSWER, SNIPPET, TAGS, THINK, TOOL_OUTPUT, Role
from rubricem_env.scaffold.lexer import Token, find_structure, parse_attributes
from rubricem_env.scaffold.turn import Block, Turn
from rubricem_env.scaffold.violations import Code, Violation, violation

_NEVER = 1 << 62
"""A token index beyond every text: "this tag is not closed"."""


def parse_turn(text: str, number: int = 1) -> Turn:
    """Read one emission; `number` is its place in the trajectory, from 1."""
    return _TurnReader(text, number).read()


class _OpenBlock:
    """A block or section that has been opened and not yet closed."""

    __slots__ = ("sections", "token")

    def __init__(self, token: Token) -> None:
        self.token = token
        self.sections: list[Block] = []

    def close(self, inner_end: int, end: int, is_closed: bool) -> Block:
        token = self.token
        return Block(token.name, token.start, token.end, inner_end, end, is_closed, tuple(self.sections))


class _TurnReader:
    """Walks the tags of one emission once."""

    def __init__(self, text: str, number: int) -> None:
        self.text = text
        self.number = number
        self.tokens = find_structure(text)
        self.closers: dict[str, list[int]] = defaultdict(list)
        self.blocks: list[Block] = []
        self.violations: list[Violation] = []
        self.block: _OpenBlock | None = None
        self.section: _OpenBlock | None = None
        self.passed_over: dict[str, int] = defaultdict(int)
        self.call: ToolCall | None = None
        self.answer: Block | None = None
        self.end: int | None = None

    def read(self) -> Turn:
        for index, token in enumerate(self.tokens):
            if token.closing:
                self.closers[token.name].append(index)
        index = 0
        while index < len(self.tokens) and self.end is None:
            token = self.tokens[index]
            self._note_spelling(token)
            index = self._close(index) if token.closing else self._open(index)
        limit = len(self.text) if self.end is None else self.end
        self._end_block(limit)
        if self.call is None and self.answer is None:
            self._note(Code.NO_ACTION)
        self.violations += suspicious_characters(self.text, self.number)
        return Turn(self.number, self.text, tuple(self.blocks), self.call, self.answer, limit, tuple(self.violations))

    def _note(self, code: Code, token: Token | None = None) -> None:
        value = "" if token is None else self.text[token.start : token.end]
        self.violations.append(violation(code, self.number, value, token.start if token else 0))

    def _note_spelling(self, token: Token) -> None:
        lower = token.written.lower()
        if lower != token.written:
            self._note(Code.TAG_CASE, token)
        if lower != token.name:
            self._note(Code.ALIAS_TAG, token)
        if token.attributes and not parse_attributes(token).is_clean:
            self._note(Code.BAD_ATTRIBUTE, token)

    # -- opening tags: each returns the index of the next token to look at

    def _open(self, index: int) -> int:
        token = self.tokens[index]
        role = TAGS[token.name].role
        if role is Role.THOUGHT:
            return self._open_thought(index)
        if role is Role.SECTION:
            return self._open_section(index)
        if role is Role.FOREIGN:
            return self._open_foreign(index)
        if self.block is not None and self._is_in_passing(index, self.block):
            return self._pass_over(index, Code.NESTED_TAG)
        if role is Role.BLOCK:
            self._end_block(token.start)
            self.block = _OpenBlock(token)
            if any(block.name == token.name for block in self.blocks):
                self._note(Code.DUPLICATE_BLOCK, token)
            if token.empty:
                self._finish_block(token.end, token.end, is_closed=True)
            return index + 1
        return self._open_action(index)

    def _open_thought(self, index: int) -> int:
        token = self.tokens[index]
        closing = index if token.empty else self._closer(THINK, index)
        inside = self.tokens[index + 1 : closing] if closing != _NEVER else []
        if inside:
            self._note(Code.TAG_IN_THINK, inside[0])
        if self.block is not None:
            self._note(Code.NESTED_TAG, token)
        if closing == _NEVER:
            self._note(Code.UNCLOSED_TAG, token)
            self._end_block(token.start)
            size = len(self.text)
            self.blocks.append(Block(THINK, token.start, token.end, size, size, is_closed=False))
            return len(self.tokens)
        if self.block is None:
            last = self.tokens[closing]
            inner_end = max(token.end, last.start)
            self.blocks.append(Block(THINK, token.start, token.end, inner_end, last.end, is_closed=True))
        return closing + 1

    def _open_section(self, index: int) -> int:
        token = self.tokens[index]
        if self.block is None or self.block.token.name != TAGS[token.name].parent:
            return self._pass_over(index, Code.MISPLACED_TAG)
        if self.section is not None and self._is_in_passing(index, self.section):
            return self._pass_over(index, Code.NESTED_TAG)
        self._end_section(token.start)
        self.section = _OpenBlock(token)
        if any(section.name == token.name for section in self.block.sections):
            self._note(Code.DUPLICATE_BLOCK, token)
        if token.empty:
            self._finish_section(token.end, token.end, is_closed=True)
        return index + 1

    def _open_foreign(self, index: int) -> int:
        token = self.tokens[index]
        if token.name == SNIPPET:
            return self._pass_over(index, Code.SELF_WRITTEN_SNIPPET)
        if self.block is not None and self._is_in_passing(index, self.block):
            return self._pass_over(index, Code.NESTED_TAG)
        self._note(Code.SELF_WRITTEN_TOOL_OUTPUT, token)
        self.end = token.start
        return index + 1

    def _open_action(self, index: int) -> int:
        token = self.tokens[index]
        closing = index if token.empty else self._closer(token.name, index)
        if closing == _NEVER:
            return self._open_unclosed_action(index)
        self._end_block(token.start)
        last = self.tokens[closing]
        inner_end = max(token.end, last.start)
        block = Block(token.name, token.start, token.end, inner_end, last.end, is_closed=True)
        self.blocks.append(block)
        self._note_inside(index, closing)
        self.end = last.end
        if token.name == ANSWER:
            self.answer = block
            if not block.inner(self.text).strip():
                self._note(Code.EMPTY_ANSWER, token)
        else:
            self.call = self._read_call(token, block)
        self._note_rest(closing)
        return closing + 1

    def _open_unclosed_action(self, index: int) -> int:
        """Without its closing tag an action is a mention if a whole action follows, else a truncated one."""
        token = self.tokens[index]
        self._note(Code.UNCLOSED_TAG, token)
        if self._last_whole_action > index:
            self.passed_over[token.name] += 1
            return index + 1
        self._end_block(token.start)
        size = len(self.text)
        self.blocks.append(Block(token.name, token.start, token.end, size, size, is_closed=False))
        return len(self.tokens)

    # -- closing tags

    def _close(self, index: int) -> int:
        token = self.tokens[index]
        if self.section is not None and self.section.token.name == token.name:
            self._finish_section(token.start, token.end, is_closed=True)
        elif self.block is not None and self.block.token.name == token.name:
            self._end_section(token.start)
            self._finish_block(token.start, token.end, is_closed=True)
        elif self.passed_over[token.name]:
            self.passed_over[token.name] -= 1
        else:
            self._note(Code.UNEXPECTED_CLOSE, token)
        return index + 1

    def _end_block(self, at: int) -> None:
        """Close an open block where the next one begins, and say that its closing tag is missing."""
        if self.block is not None:
            self._end_section(at)
            self._note(Code.UNCLOSED_TAG, self.block.token)
            self._finish_block(at, at, is_closed=False)

    def _end_section(self, at: int) -> None:
        if self.section is not None:
            self._note(Code.UNCLOSED_TAG, self.section.token)
            self._finish_section(at, at, is_closed=False)

    def _finish_block(self, inner_end: int, end: int, *, is_closed: bool) -> None:
        if self.block is not None:
            self.blocks.append(self.block.close(inner_end, end, is_closed))
        self.block = None

    def _finish_section(self, inner_end: int, end: int, *, is_closed: bool) -> None:
        if self.section is not None and self.block is not None:
            self.block.sections.append(self.section.close(inner_end, end, is_closed))
        self.section = None

    # -- looking ahead

    def _closer(self, name: str, index: int) -> int:
        """The index of the next closing tag of that name, or `_NEVER`."""
        closers = self.closers[name]
        at = bisect_right(closers, index)
        return closers[at] if at < len(closers) else _NEVER

    def _is_in_passing(self, index: int, container: _OpenBlock) -> bool:
        """Whether the container closes before this tag would: then the tag is a mention, not structure."""
        token = self.tokens[index]
        own = index if token.empty else self._closer(token.name, index)
        closing = self._closer(container.token.name, index)
        return closing != _NEVER and closing <= own

    def _pass_over(self, index: int, code: Code) -> int:
        token = self.tokens[index]
        self._note(code, token)
        if not token.empty:
            self.passed_over[token.name] += 1
        return index + 1

    @cached_property
    def _last_whole_action(self) -> int:
        """The index of the last action that opens and closes; found once, so that mentions stay linear."""
        for index in range(len(self.tokens) - 1, -1, -1):
            if self._is_whole_action(index):
                return index
        return -1

    def _is_whole_action(self, index: int) -> bool:
        token = self.tokens[index]
        if token.closing or TAGS[token.name].role is not Role.ACTION:
            return False
        return token.empty or self._closer(token.name, index) != _NEVER

    # -- the action

    def _read_call(self, token: Token, block: Block) -> ToolCall:
        attributes = dict(parse_attributes(token).values)
        name = attributes.pop("name", "")
        query = block.inner(self.text).strip() or attributes.get("query", "").strip()
        attributes.pop("query", None)
        if not name:
            self._note(Code.MISSING_TOOL_NAME, token)
        if not query:
            self._note(Code.EMPTY_QUERY, token)
        return ToolCall(name=name, query=query, parameters=tuple(sorted(attributes.items())))

    def _note_inside(self, opening: int, closing: int) -> None:
        """Tags inside an action are text; citations are not among the tokens."""
        for token in self.tokens[opening + 1 : closing]:
            if not token.closing:
                self._note(Code.SELF_WRITTEN_SNIPPET if token.name == SNIPPET else Code.NESTED_TAG, token)

    def _note_rest(self, closing: int) -> None:
        if self.end is None or not self.text[self.end :].strip():
            return
        self.violations.append(violation(Code.TEXT_AFTER_ACTION, self.number, self.text[self.end :].strip(), self.end))
        for index in range(closing + 1, len(self.tokens)):
            token = self.tokens[index]
            if self._is_whole_action(index):
                self._note(Code.TWO_ACTIONS, token)
            elif token.name == TOOL_OUTPUT and not token.closing:
                self._note(Code.SELF_WRITTEN_TOOL_OUTPUT, token)
