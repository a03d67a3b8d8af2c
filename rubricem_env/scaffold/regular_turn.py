"""Reads a turn in the usual form with one regular expression."""

import re

from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.scaffold.grammar import ANSWER, CALL_TOOL, CITE, PLAN, REVIEW, SECTIONS, STATE_EVALUATION, THINK
from rubricem_env.scaffold.lexer import suspicious_characters
from rubricem_env.scaffold.turn import Block, Turn

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
    """The turn of a regular emission, read with one expression; None if anything in it is unusual.

    Nearly all turns of a trained policy are regular. A property test checks that `TurnReader` gives the same turns.
    """
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
    violations.sort(key=lambda violation: violation.start)
    return Turn(number, text, tuple(blocks), call, answer, blocks[-1].end, tuple(violations))


def _block(match: re.Match[str], name: str) -> Block:
    inner_start, inner_end = match.span(name)
    sections = tuple(_block(match, section) for section in SECTIONS.get(name, ()) if match.start(section) >= 0)
    return Block(name, inner_start - len(name) - 2, inner_start, inner_end, inner_end + len(name) + 3, True, sections)


def _call(match: re.Match[str]) -> ToolCall | None:
    """The call; None if its attributes are unusual."""
    pairs = _PAIR.findall(match["attributes"])
    attributes = {name: value.strip() for name, value in pairs}
    name = attributes.pop("name", "")
    query = match[CALL_TOOL].strip()
    if len(attributes) + 1 != len(pairs) or not name or not query or "query" in attributes:
        return None
    return ToolCall(name=name, query=query, parameters=tuple(sorted(attributes.items())))
