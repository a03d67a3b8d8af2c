"""One emission in, one turn out. Never raises: whatever a model writes is a turn with violations.

The rules, where the paper leaves them open (choices A9-A11):
- The first action tag that closes after it was opened ends the turn. What follows it is cut, so that a turn is the
  same whether it was stopped there or ran on.
- Of several opening tags the first begins an answer, the last a tool call: an answer may mention a tag.
- A thought is opaque; one that is never closed hides the rest of the turn. Inside a block it hides all but the
  closing tag of that block.
- A tag inside a block that closes before the tag does is a mention: plain text.
- A block that is not closed ends where the next one begins.
- Tool output that the policy writes itself cuts the turn where it begins, except as text of an answer.
- Citations shape nothing and are left to `citations`.

What one emission turned out to be: its blocks, its action, and what was wrong with it.

The elements of one emission while it is read: which are open, which are done, and what was wrong with them.

No name is open twice, so that the stack stays as short as the grammar and every tag costs the same.

The turn by the book, read with one expression: what nearly every turn of a trained policy is.

It gives what `TurnReader` would give, at a fraction of the cost, or nothing: a turn that is in any way out of the
ordinary goes to the reader. A property test holds the two equal.

Watches an emission as it is generated and says when its action is complete, so that generation can stop there.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.scaffold.grammar import (
    ANSWER,
    CALL_TOOL,
    CITE,
    PLAN,
    REVIEW,
    SECTIONS,
    SNIPPET,
    STATE_EVALUATION,
    TAGS,
    THINK,
    TOOL_OUTPUT,
    Code,
    Role,
    Violation,
    violation,
)
from rubricem_env.scaffold.lexer import Scanner, Token, find_structure, parse_attributes, suspicious_characters


class Block(NamedTuple):
    """A closed or unclosed element of a turn; offsets count in the turn's text."""

    name: str
    start: int
    inner_start: int
    inner_end: int
    end: int
    is_closed: bool
    """False where the closing tag is missing and the block ends at the next one, or with the text."""
    sections: tuple["Block", ...] = ()

    def inner(self, text: str) -> str:
        return text[self.inner_start : self.inner_end]


class Turn(NamedTuple):
    """One emission of the policy, read."""

    number: int
    """From 1."""
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


_TEXT = "[^<]*+"
_ATTRIBUTE = r'\ ([a-z]{1,32})="([^"<>]{0,200})"'


def _element(name: str, inner: str = _TEXT) -> str:
    return f"<{name}>(?P<{name}>{inner})</{name}>{_TEXT}"


def _with_sections(name: str) -> str:
    """A block around its sections, each at most once and in order."""
    return _element(name, _TEXT + "".join(f"(?:{_element(section)})?" for section in SECTIONS[name]))


_CLAIMS = rf"{_TEXT}(?:</?{CITE}(?![\w-])[^<>]*+>{_TEXT})*+"
_ACTION = (
    rf"(?P<call><{CALL_TOOL}(?P<attributes>(?:{_ATTRIBUTE}){{1,8}}+)>)(?P<{CALL_TOOL}>{_TEXT})</{CALL_TOOL}>"
    rf"|<{ANSWER}>(?P<{ANSWER}>{_CLAIMS})</{ANSWER}>"
)
_REGULAR = re.compile(
    rf"{_TEXT}{_element(THINK)}(?:{_element(STATE_EVALUATION)})?(?:{_with_sections(PLAN)})?"
    rf"(?:{_with_sections(REVIEW)})?(?:{_ACTION})\s*+",
    re.ASCII,
)
_PAIR = re.compile(_ATTRIBUTE, re.ASCII)
_BLOCKS = (THINK, STATE_EVALUATION, PLAN, REVIEW)


def read_regular_turn(text: str, number: int) -> Turn | None:
    """The turn, if it is by the book; None says nothing about what it is otherwise."""
    match = _REGULAR.fullmatch(text)
    if match is None:
        return None
    blocks = [_block(match, name) for name in _BLOCKS if match.start(name) >= 0]
    if match[CALL_TOOL] is None:
        answer = _block(match, ANSWER)
        call = None
        if not match[ANSWER].strip():
            return None
        blocks.append(answer)
    else:
        answer = None
        call = _call(match)
        if call is None:
            return None
        inner_start, inner_end = match.span(CALL_TOOL)
        end = inner_end + len(CALL_TOOL) + 3
        blocks.append(Block(CALL_TOOL, match.start("call"), inner_start, inner_end, end, is_closed=True))
    violations = suspicious_characters(text, number, tags=len(text))  # every `<` is accounted for
    violations.sort(key=lambda found: found.start)
    return Turn(number, text, tuple(blocks), call, answer, blocks[-1].end, tuple(violations))


def _block(match: re.Match[str], name: str) -> Block:
    inner_start, inner_end = match.span(name)
    parts = tuple(_block(match, part) for part in SECTIONS.get(name, ()) if match.start(part) >= 0)
    return Block(name, inner_start - len(name) - 2, inner_start, inner_end, inner_end + len(name) + 3, True, parts)


def _call(match: re.Match[str]) -> ToolCall | None:
    """The call, unless something about its attributes wants a second look."""
    pairs = _PAIR.findall(match["attributes"])
    attributes = {name: value.strip() for name, value in pairs}
    name, query = attributes.pop("name", ""), match[CALL_TOOL].strip()
    if len(attributes) + 1 != len(pairs) or not name or not query or "query" in attributes:
        return None
    return ToolCall(name=name, query=query, parameters=tuple(sorted(attributes.items())))


_FOREIGN = {SNIPPET: Code.SELF_WRITTEN_SNIPPET, TOOL_OUTPUT: Code.SELF_WRITTEN_TOOL_OUTPUT}


def parse_turn(text: str, number: int = 1) -> Turn:
    """Read one emission; `number` is its place in the trajectory, from 1."""
    return read_regular_turn(text, number) or read_any_turn(text, number)


def read_any_turn(text: str, number: int = 1) -> Turn:
    """Read one emission tag by tag, whatever it is."""
    reader = TurnReader(number)
    return reader.finish(text, reader.take_all(find_structure(text)))


class TurnReader:
    """Walks the tags of one emission once, without looking ahead."""

    def __init__(self, number: int = 1) -> None:
        self._number = number
        self._elements = Elements(number)
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
        """Read the next tags until the turn is over; return those beyond."""
        for index, token in enumerate(tokens):
            if self._end is not None:
                return tokens[index:]
            self._tags += 1
            self._take(token)
        return ()

    def _take(self, token: Token) -> None:
        if self._thought is not None and self._stays_in_thought(token):
            return
        self._elements.see(token)
        self._note_spelling(token)
        if token.closing:
            self._close(token)
        else:
            self._open(token)

    def finish(self, text: str, rest: Sequence[Token] = ()) -> Turn:
        """The turn, once all of its text is known; `rest` are the tags after it was over."""
        if self._end is None:
            self._break_off(len(text))
        end = len(text) if self._end is None else self._end
        call, answer = self._read_action(text)
        if self._action is None:
            self._elements.violations.append(violation(Code.NO_ACTION, self._number, start=end))
        else:
            self._note_rest(text, rest)
        violations = [
            *self._elements.violations,
            *suspicious_characters(text, self._number, tags=self._tags + len(rest)),
        ]
        violations.sort(key=lambda found: found.start)
        return Turn(self._number, text, self._elements.in_order(), call, answer, end, tuple(violations))

    def _note(self, code: Code, token: Token | None = None) -> None:
        self._elements.note(code, token)

    def _note_spelling(self, token: Token) -> None:
        if token.is_plain:
            return
        lower = token.written.lower()
        if lower != token.written:
            self._note(Code.TAG_CASE, token)
        if lower != token.name:
            self._note(Code.ALIAS_TAG, token)
        if token.attributes and not parse_attributes(token).is_clean:
            self._note(Code.BAD_ATTRIBUTE, token)

    def _mention(self, token: Token, code: Code) -> None:
        """A tag that shapes nothing; its closing tag, should one come, is expected."""
        self._note(code, token)
        if not token.empty:
            self._mentions[token.name] += 1

    # -- thoughts

    def _open_thought(self, token: Token) -> None:
        if self._elements.is_inside_block:
            self._note(Code.NESTED_TAG, token)
        self._thought, self._thought_has_tags = token, False
        if token.empty:
            self._close_thought(token.end, token.end)

    def _stays_in_thought(self, token: Token) -> bool:
        """Whether the tag is hidden by the thought; its end, or that of the block around it, is not."""
        if token.closing and token.name == THINK:
            self._note_spelling(token)
            self._close_thought(token.start, token.end)
            return True
        if token.closing and self._elements.is_open(token.name):
            self._thought = None
            self._mentions[THINK] += 1
            return False
        if not self._thought_has_tags:
            self._note(Code.TAG_IN_THINK, token)
        self._thought_has_tags = True
        return True

    def _close_thought(self, inner_end: int, end: int) -> None:
        if self._thought is not None and not self._elements.is_inside_block:
            self._elements.add(self._thought, inner_end, end, is_closed=True)
        self._thought = None

    # -- opening tags

    def _open(self, token: Token) -> None:
        if token.role is Role.THOUGHT:
            self._open_thought(token)
        elif token.name == SNIPPET:
            self._mention(token, Code.SELF_WRITTEN_SNIPPET)
        elif token.role is Role.SECTION and not self._elements.is_open(TAGS[token.name].parent):
            self._mention(token, Code.MISPLACED_TAG)
        elif self._elements.is_open(token.name) and token.name != CALL_TOOL:
            self._mention(token, Code.NESTED_TAG)
        elif token.name == TOOL_OUTPUT and not self._elements.is_inside_any:
            self._cut(token)
        else:
            self._elements.open(token)
            if token.empty:
                self._close(token)

    # -- closing tags

    def _close(self, token: Token) -> None:
        if not self._elements.is_open(token.name):
            if self._mentions[token.name]:
                self._mentions[token.name] -= 1
            else:
                self._note(Code.UNEXPECTED_CLOSE, token)
        elif token.role is Role.ACTION:
            self._complete(token)
        elif token.name == TOOL_OUTPUT:
            self._close_tool_output()
        elif token.role is Role.SECTION:
            self._elements.close_section(token)
        else:
            self._elements.close_block(token)

    def _close_tool_output(self) -> None:
        if self._elements.is_inside(TOOL_OUTPUT, ANSWER):
            self._elements.forget(TOOL_OUTPUT, Code.SELF_WRITTEN_TOOL_OUTPUT)
        else:
            self._cut(self._elements.opener(TOOL_OUTPUT))

    # -- the end of the turn

    def _complete(self, closing: Token) -> None:
        """An action closes: it ends the turn, unless it stands in tool output that the policy writes itself."""
        opening = self._elements.opener(closing.name)
        if self._elements.is_inside(closing.name, TOOL_OUTPUT):
            self._close_tool_output()
            if self.is_over:
                return
        inside = self._elements.rewind(opening)
        self._elements.end_all(opening.start)
        block = self._elements.add(opening, max(opening.end, closing.start), closing.end, is_closed=True)
        self._note_inside(inside)
        self._action = (opening, block)
        self._end = closing.end

    def _cut(self, token: Token) -> None:
        if self._elements.is_open(TOOL_OUTPUT):
            self._elements.rewind(token)
        self._note(Code.SELF_WRITTEN_TOOL_OUTPUT, token)
        self._elements.end_all(token.start)
        self._end = token.start

    def _break_off(self, size: int) -> None:
        """The text ends without an action: in an answer, in tool output, in a call, in a thought, or in between."""
        elements = self._elements
        if elements.is_open(TOOL_OUTPUT) and not elements.is_inside(TOOL_OUTPUT, ANSWER):
            self._cut(elements.opener(TOOL_OUTPUT))
            return
        pending = next((elements.opener(name) for name in (ANSWER, CALL_TOOL) if elements.is_open(name)), self._thought)
        if pending is None:
            elements.end_all(size)
        else:
            self._leave_open(pending, size)

    def _leave_open(self, token: Token, size: int) -> None:
        if token.role is Role.ACTION:
            self._note_inside(self._elements.rewind(token))
        self._elements.end_all(token.start)
        self._note(Code.UNCLOSED_TAG, token)
        self._elements.add(token, size, size, is_closed=False)

    def _note_inside(self, tokens: Sequence[Token]) -> None:
        """Tags inside an action are text; citations are not among the tokens."""
        for token in tokens:
            if not token.closing:
                self._note(_FOREIGN.get(token.name, Code.NESTED_TAG), token)

    def _note_rest(self, text: str, rest: Sequence[Token]) -> None:
        end = self._end or 0
        after = text[end:].strip()
        if after:
            self._elements.violations.append(violation(Code.TEXT_AFTER_ACTION, self._number, after, end))
        opened: dict[str, Token] = {}
        for token in rest:
            if token.name in _FOREIGN and not token.closing:
                self._note(_FOREIGN[token.name], token)
            if token.role is Role.ACTION and not token.closing:
                opened.setdefault(token.name, token)
            if token.name in opened and (token.closing or token.empty):
                self._note(Code.TWO_ACTIONS, opened.pop(token.name))

    # -- the action

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
        attributes = dict(parse_attributes(opening).values)
        name = attributes.pop("name", "")
        query = inner or attributes.get("query", "").strip()
        attributes.pop("query", None)
        if not name:
            self._note(Code.MISSING_TOOL_NAME, opening)
        if not query:
            self._note(Code.EMPTY_QUERY, opening)
        return ToolCall(name=name, query=query, parameters=tuple(sorted(attributes.items())))


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
