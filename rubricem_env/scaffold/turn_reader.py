"""Reads any emission into one turn, tag by tag.

The paper leaves these rules open:
- The first action tag that closes after it was opened ends the turn. The text after it is cut, so that a turn is the
  same whether generation stopped there or continued.
- Of several opening tags the first begins an answer, the last a tool call: an answer may mention a tag.
- A thought is opaque; one that is never closed hides the rest of the turn. Inside a block it hides everything but the
  closing tag of that block.
- A tag inside a block that closes before the tag does is a mention: plain text.
- A block that is not closed ends where the next one begins.
- Tool output that the policy writes itself cuts the turn where it begins, except inside an answer, where it is text.
- Citations do not affect the structure; `citations` finds them.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.scaffold.grammar import CALL_TOOL, DEFAULT, SNIPPET, THINK, TOOL_OUTPUT, grammar_of
from rubricem_env.scaffold.lexer import Token, parse_attributes, suspicious_characters
from rubricem_env.scaffold.turn import Block, Turn
from rubricem_env.scaffold.violation import Code, Violation, violation

FOREIGN_CODES = {SNIPPET: Code.SELF_WRITTEN_SNIPPET, TOOL_OUTPUT: Code.SELF_WRITTEN_TOOL_OUTPUT}


class _ReaderState(NamedTuple):
    """What a reader has read up to an opening tag: its open elements, and the lengths of its lists."""

    open: dict[str, Token]
    seen: int
    blocks: int
    sections: int
    violations: int


class TurnReader:
    """Reads the tags of one emission once, without looking ahead.

    It keeps the open elements on a stack. No name is open twice, so that the stack is as short as the grammar and every
    tag costs the same.
    """

    def __init__(self, number: int = 1, scaffold: Scaffold = DEFAULT) -> None:
        grammar = grammar_of(scaffold)
        self._number = number
        self._scaffold = scaffold
        self._parents = grammar.parents
        self._answer = grammar.answer
        self._open: dict[str, Token] = {}
        """The open elements, the outermost first."""
        self._states: dict[str, _ReaderState] = {}
        """The state to return to, by the opening tag that turns all text after it into plain text once it closes."""
        self._seen: list[Token] = []
        self._blocks: list[Block] = []
        self._sections: list[Block] = []
        """Complete sections of blocks that are still open."""
        self._begun: set[tuple[str, int]] = set()
        self._violations: list[Violation] = []
        self._thought: Token | None = None
        self._thought_has_tags = False
        self._mentions: Counter[str] = Counter()
        self._action: tuple[Token, Block] | None = None
        self._end: int | None = None
        self._tags = 0

    @property
    def is_over(self) -> bool:
        """An action is complete, or self-written tool output has cut the turn: no more text can change it."""
        return self._end is not None

    def take_all(self, tokens: Sequence[Token]) -> Sequence[Token]:
        """Read the next tags until the turn is over; return the tags after that."""
        for index, token in enumerate(tokens):
            if self._end is not None:
                return tokens[index:]
            self._tags += 1
            if self._thought is not None and self._stays_in_thought(token):
                continue
            self._seen.append(token)
            self._note_spelling(token)
            if token.closing:
                self._close(token)
            else:
                self._read_opening(token)
        return ()

    def finish(self, text: str, rest: Sequence[Token] = ()) -> Turn:
        """The turn, once all of its text is known; `rest` are the tags after it was over."""
        if self._end is None:
            self._break_off(len(text))
        end = len(text) if self._end is None else self._end
        call, answer = self._read_action(text)
        if self._action is None:
            self._violations.append(self._violation(Code.NO_ACTION, start=end))
        else:
            self._note_rest(text, rest)
        tags = self._tags + len(rest)
        suspicious = suspicious_characters(text, self._number, tags=tags, scaffold=self._scaffold)
        violations = [*self._violations, *suspicious]
        violations.sort(key=lambda noted: noted.start)
        blocks = tuple(sorted(self._blocks, key=lambda block: block.start))
        return Turn(self._number, text, blocks, call, answer, end, tuple(violations))

    # -- violations

    def _violation(self, code: Code, value: str = "", start: int = 0) -> Violation:
        return violation(code, self._number, value, start, scaffold=self._scaffold)

    def _note(self, code: Code, token: Token) -> None:
        self._violations.append(self._violation(code, token.tag, token.start))

    def _note_spelling(self, token: Token) -> None:
        if token.is_plain:
            return
        lower = token.written.lower()
        if lower != token.written:
            self._note(Code.TAG_CASE, token)
        if lower != token.name:
            self._note(Code.ALIAS_TAG, token)
        if token.attributes and not parse_attributes(token)[1]:
            self._note(Code.BAD_ATTRIBUTE, token)

    def _note_inside(self, tokens: Sequence[Token]) -> None:
        """Tags inside an action are text; citations are not among the tokens."""
        for token in tokens:
            if not token.closing:
                self._note(FOREIGN_CODES.get(token.name, Code.NESTED_TAG), token)

    def _note_rest(self, text: str, rest: Sequence[Token]) -> None:
        end = self._end or 0
        after = text[end:].strip()
        if after:
            self._violations.append(self._violation(Code.TEXT_AFTER_ACTION, after, end))
        opened: dict[str, Token] = {}
        for token in rest:
            if token.name in FOREIGN_CODES and not token.closing:
                self._note(FOREIGN_CODES[token.name], token)
            if token.role == "action" and not token.closing:
                opened.setdefault(token.name, token)
            if token.name in opened and (token.closing or token.empty):
                self._note(Code.TWO_ACTIONS, opened.pop(token.name))

    def _mention(self, token: Token, code: Code) -> None:
        """Note a tag that is not structure; its closing tag, if there is one, is expected."""
        self._note(code, token)
        if not token.empty:
            self._mentions[token.name] += 1

    # -- thoughts

    @property
    def _is_inside_block(self) -> bool:
        return any(token.role == "block" for token in self._open.values())

    def _stays_in_thought(self, token: Token) -> bool:
        """Whether the thought hides the tag; it hides neither its own end nor that of the block around it."""
        if token.closing and token.name == THINK:
            self._note_spelling(token)
            self._close_thought(token.start, token.end)
            return True
        if token.closing and token.name in self._open:
            self._thought = None
            self._mentions[THINK] += 1
            return False
        if not self._thought_has_tags:
            self._note(Code.TAG_IN_THINK, token)
        self._thought_has_tags = True
        return True

    def _close_thought(self, inner_end: int, end: int) -> None:
        if self._thought is not None and not self._is_inside_block:
            self._blocks.append(_element_of(self._thought, inner_end, end))
        self._thought = None

    # -- opening tags

    def _read_opening(self, token: Token) -> None:
        if token.role == "thought":
            if self._is_inside_block:
                self._note(Code.NESTED_TAG, token)
            self._thought = token
            self._thought_has_tags = False
            if token.empty:
                self._close_thought(token.end, token.end)
        elif token.name == SNIPPET:
            self._mention(token, Code.SELF_WRITTEN_SNIPPET)
        elif token.role == "section" and self._parents[token.name] not in self._open:
            self._mention(token, Code.MISPLACED_TAG)
        elif token.name in self._open and token.name != CALL_TOOL:
            self._mention(token, Code.NESTED_TAG)
        elif token.name == TOOL_OUTPUT and not self._open:
            self._cut(token)
        else:
            self._open_element(token)
            if token.empty:
                self._close(token)

    def _open_element(self, token: Token) -> None:
        """Open an element inside the open ones. A tool call that was open becomes a mention."""
        if token.name in self._open:
            self._forget(token.name, Code.UNCLOSED_TAG)
        if token.role in ("action", "foreign"):
            self._states[token.name] = _ReaderState(
                open=dict(self._open),
                seen=len(self._seen),
                blocks=len(self._blocks),
                sections=len(self._sections),
                violations=len(self._violations),
            )
        else:
            parent = self._parents.get(token.name)
            key = (token.name, self._open[parent].start if parent else -1)
            if key in self._begun:
                self._note(Code.DUPLICATE_BLOCK, token)
            self._begun.add(key)
        self._open[token.name] = token

    def _forget(self, name: str, code: Code) -> None:
        """The open element was a mention; elements that were opened after it stay."""
        self._note(code, self._open.pop(name))

    def _rewind(self, token: Token) -> Sequence[Token]:
        """Undo this opening tag and everything after it; return the tags after it."""
        state = self._states[token.name]
        self._open = dict(state.open)
        del self._blocks[state.blocks :]
        del self._sections[state.sections :]
        del self._violations[state.violations :]
        return self._seen[state.seen :]

    # -- closing tags

    def _close(self, token: Token) -> None:
        if token.name not in self._open:
            if self._mentions[token.name]:
                self._mentions[token.name] -= 1
            else:
                self._note(Code.UNEXPECTED_CLOSE, token)
        elif token.role == "action":
            self._complete(token)
        elif token.name == TOOL_OUTPUT:
            self._close_tool_output()
        else:
            self._close_element(token)

    def _close_element(self, closing: Token) -> None:
        """Close a block or a section. Elements inside it that are open are mentions; those before it stay unclosed."""
        tokens = list(self._open.values())
        index = list(self._open).index(closing.name)
        below = tokens[:index]
        opening = tokens[index]
        above = tokens[index + 1 :]
        is_section = closing.role == "section"
        sections: tuple[Block, ...] = ()
        if is_section:
            self._drop(above, opening.start)
        else:
            own = [token for token in above if self._parents.get(token.name) == opening.name]
            self._end_unclosed(own, closing.start)
            sections = self._take_sections(opening, closing.start)
            self._drop([token for token in above if token not in own], opening.start)
        first = len(below)
        while first and below[first - 1].role in (("section",) if is_section else ("block", "section")):
            first -= 1
        self._end_unclosed(below[first:], opening.start)
        done = self._sections if is_section else self._blocks
        done.append(_element_of(opening, closing.start, closing.end, sections=sections))
        self._open = {token.name: token for token in below[:first]}

    def _drop(self, mentions: Sequence[Token], start: int) -> None:
        """Elements inside one that closes before them were mentions, and so was everything in them."""
        for token in mentions:
            self._note(Code.NESTED_TAG, token)
        for done in (self._blocks, self._sections):
            index = _begun_after(start, done)
            for block in done[index:]:
                self._violations.append(self._violation(Code.NESTED_TAG, f"<{block.name}>", block.start))
            del done[index:]

    def _end_unclosed(self, tokens: Sequence[Token], at: int) -> None:
        """End unclosed elements: each ends where the next one begins, open or complete, the last at `at`."""
        section_end = block_end = at
        for token in reversed(tokens):
            self._note(Code.UNCLOSED_TAG, token)
            if token.role == "section":
                section_end = _first_start(self._sections, token.start, section_end)
                self._sections.append(_element_of(token, section_end, section_end, is_closed=False))
            else:
                block_end = _first_start(self._blocks, token.start, block_end)
            if token.role == "block":
                inside = self._take_sections(token, block_end)
                self._blocks.append(_element_of(token, block_end, block_end, sections=inside, is_closed=False))
            section_end = token.start
            if token.role != "section":
                block_end = token.start

    def _end_all(self, at: int) -> None:
        """No open element will be closed."""
        self._end_unclosed(list(self._open.values()), at)
        self._open = {}

    def _take_sections(self, opening: Token, end: int) -> tuple[Block, ...]:
        """Remove the sections of an ending block from the complete ones, and return them."""
        index = _begun_after(opening.start, self._sections)
        own = [part for part in self._sections[index:] if self._parents[part.name] == opening.name and part.start < end]
        del self._sections[index:]
        return tuple(sorted(own, key=lambda part: part.start))

    # -- the end of the turn

    def _is_inside(self, name: str, outer: str) -> bool:
        """Whether both are open, `name` inside `outer`."""
        return name in self._open and outer in self._open and self._open[outer].start < self._open[name].start

    def _close_tool_output(self) -> None:
        if self._is_inside(TOOL_OUTPUT, self._answer):
            self._forget(TOOL_OUTPUT, Code.SELF_WRITTEN_TOOL_OUTPUT)
        else:
            self._cut(self._open[TOOL_OUTPUT])

    def _complete(self, closing: Token) -> None:
        """An action closes: it ends the turn, unless it is inside tool output that the policy writes itself."""
        opening = self._open[closing.name]
        if self._is_inside(closing.name, TOOL_OUTPUT):
            self._close_tool_output()
            if self.is_over:
                return
        inside = self._rewind(opening)
        self._end_all(opening.start)
        block = _element_of(opening, closing.start, closing.end)
        self._blocks.append(block)
        self._note_inside(inside)
        self._action = (opening, block)
        self._end = closing.end

    def _cut(self, token: Token) -> None:
        if TOOL_OUTPUT in self._open:
            self._rewind(token)
        self._note(Code.SELF_WRITTEN_TOOL_OUTPUT, token)
        self._end_all(token.start)
        self._end = token.start

    def _break_off(self, size: int) -> None:
        """The text ends without an action: in an answer, in tool output, in a call, in a thought, or in between."""
        if TOOL_OUTPUT in self._open and not self._is_inside(TOOL_OUTPUT, self._answer):
            self._cut(self._open[TOOL_OUTPUT])
            return
        pending = next((self._open[name] for name in (self._answer, CALL_TOOL) if name in self._open), self._thought)
        if pending is None:
            self._end_all(size)
            return
        if pending.role == "action":
            self._note_inside(self._rewind(pending))
        self._end_all(pending.start)
        self._note(Code.UNCLOSED_TAG, pending)
        self._blocks.append(_element_of(pending, size, size, is_closed=False))

    def _read_action(self, text: str) -> tuple[ToolCall | None, Block | None]:
        if self._action is None:
            return None, None
        opening, block = self._action
        inner = block.inner(text).strip()
        if opening.name == CALL_TOOL:
            return self._read_call(opening, inner), None
        if not inner:
            self._note(Code.EMPTY_ANSWER, opening)
        return None, block

    def _read_call(self, opening: Token, inner: str) -> ToolCall:
        attributes = dict(parse_attributes(opening)[0])
        name = attributes.pop("name", "")
        query = inner or attributes.get("query", "").strip()
        attributes.pop("query", None)
        if not name:
            self._note(Code.MISSING_TOOL_NAME, opening)
        if not query:
            self._note(Code.EMPTY_QUERY, opening)
        return ToolCall(name=name, query=query, parameters=tuple(sorted(attributes.items())))


def _element_of(
    opening: Token, inner_end: int, end: int, *, sections: tuple[Block, ...] = (), is_closed: bool = True
) -> Block:
    inner_end = max(opening.end, inner_end)
    return Block(opening.name, opening.start, opening.end, inner_end, end, is_closed, sections)


def _begun_after(start: int, done: Sequence[Block]) -> int:
    """The index of the first block that began after `start`; those are the last ones."""
    index = len(done)
    while index and done[index - 1].start > start:
        index -= 1
    return index


def _first_start(done: Sequence[Block], after: int, limit: int) -> int:
    return min([limit, *(block.start for block in done[_begun_after(after, done) :])])
