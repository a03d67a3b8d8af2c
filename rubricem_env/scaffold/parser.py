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
"""

from collections import Counter
from collections.abc import Sequence

from rubricem_env.domain.tool import ToolCall
from rubricem_env.scaffold.characters import suspicious_characters
from rubricem_env.scaffold.elements import Elements
from rubricem_env.scaffold.grammar import ANSWER, CALL_TOOL, SNIPPET, TAGS, THINK, TOOL_OUTPUT, Role
from rubricem_env.scaffold.lexer import Token, find_structure, parse_attributes
from rubricem_env.scaffold.regular import read_regular_turn
from rubricem_env.scaffold.turn import Block, Turn
from rubricem_env.scaffold.violations import Code, violation

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
