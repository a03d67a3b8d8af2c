"""Reads a turn in the usual form with one regular expression."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.scaffold.grammar import CALL_TOOL, CITE, DEFAULT, MAX_SCAFFOLDS, THINK, grammar_of
from rubricem_env.scaffold.lexer import suspicious_characters
from rubricem_env.scaffold.turn import Block, Turn

_TEXT = "[^<]*+"
_ATTRIBUTE = r'\ ([a-z]{1,32})="([^"<>]{0,200})"'


def _element(name: str, inner: str = _TEXT) -> str:
    return f"<{name}>(?P<{name}>{inner})</{name}>{_TEXT}"


def _with_sections(name: str, sections: tuple[str, ...]) -> str:
    """A block around its sections, each at most once and in order."""
    return _element(name, _TEXT + "".join(f"(?:{_element(section)})?" for section in sections))


_CLAIMS = rf"{_TEXT}(?:</?{CITE}(?![\w-])[^<>]*+>{_TEXT})*+"
_CALL = rf"(?P<CALL><{CALL_TOOL}(?P<ATTRIBUTES>(?:{_ATTRIBUTE}){{1,8}}+)>)(?P<{CALL_TOOL}>{_TEXT})</{CALL_TOOL}>|"
"""Groups in upper case: no tag has such a name."""
_PAIR = re.compile(_ATTRIBUTE, re.ASCII)


class _RegularTurn(NamedTuple):
    """The usual form of a turn in a scaffold."""

    pattern: re.Pattern[str]
    blocks: tuple[str, ...]
    """The blocks before the action, in order."""
    sections: Mapping[str, tuple[str, ...]]
    answer: str
    calls_tools: bool


@lru_cache(maxsize=MAX_SCAFFOLDS)
def _regular_turn(scaffold: Scaffold) -> _RegularTurn:
    grammar = grammar_of(scaffold)
    answer = grammar.answer
    inner = _CLAIMS if scaffold.cites else _TEXT
    action = rf"{_CALL if scaffold.calls_tools else ''}<{answer}>(?P<{answer}>{inner})</{answer}>"
    blocks = "".join(rf"(?:{_with_sections(tag, grammar.sections.get(tag, ()))})?" for tag in scaffold.blocks)
    pattern = re.compile(rf"{_TEXT}{_element(THINK)}{blocks}(?:{action})\s*+", re.ASCII)
    return _RegularTurn(pattern, (THINK, *scaffold.blocks), grammar.sections, answer, scaffold.calls_tools)


def read_regular_turn(text: str, number: int, scaffold: Scaffold = DEFAULT) -> Turn | None:
    """The turn of a regular emission, read with one expression; None if anything in it is unusual.

    Nearly all turns of a trained policy are regular. A property test checks that `TurnReader` gives the same turns.
    """
    pattern, before, sections, answer_tag, calls_tools = _regular_turn(scaffold)
    match = pattern.fullmatch(text)
    if match is None:
        return None
    blocks = [_block(match, name, sections) for name in before if match.start(name) >= 0]
    if not calls_tools or match[CALL_TOOL] is None:
        answer = _block(match, answer_tag, sections)
        call = None
        if not match[answer_tag].strip():
            return None
        blocks.append(answer)
    else:
        answer = None
        call = _call(match)
        if call is None:
            return None
        inner_start, inner_end = match.span(CALL_TOOL)
        end = inner_end + len(CALL_TOOL) + 3
        blocks.append(Block(CALL_TOOL, match.start("CALL"), inner_start, inner_end, end, is_closed=True))
    violations = suspicious_characters(text, number, tags=len(text), scaffold=scaffold)  # every `<` is accounted for
    violations.sort(key=lambda violation: violation.start)
    return Turn(number, text, tuple(blocks), call, answer, blocks[-1].end, tuple(violations))


def _block(match: re.Match[str], name: str, sections: Mapping[str, tuple[str, ...]]) -> Block:
    inner_start, inner_end = match.span(name)
    own = tuple(_block(match, section, sections) for section in sections.get(name, ()) if match.start(section) >= 0)
    return Block(name, inner_start - len(name) - 2, inner_start, inner_end, inner_end + len(name) + 3, True, own)


def _call(match: re.Match[str]) -> ToolCall | None:
    """The call; None if its attributes are unusual."""
    pairs = _PAIR.findall(match["ATTRIBUTES"])
    attributes = {name: value.strip() for name, value in pairs}
    name = attributes.pop("name", "")
    query = match[CALL_TOOL].strip()
    if len(attributes) + 1 != len(pairs) or not name or not query or "query" in attributes:
        return None
    return ToolCall(name=name, query=query, parameters=tuple(sorted(attributes.items())))
