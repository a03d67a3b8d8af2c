"""Finds the scaffold's tags in text, at once or piece by piece with the same result, in linear time.

A tag is `<`, an optional `/`, a name of the grammar in any case, well-formed attributes or anything short
without angle brackets, and `>`. Everything else is text. No candidate reaches past the next `<`; so a million of them
take linear time, and the scanner keeps back only the last one. Invisible characters and lookalike tags are only
reported.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import NamedTuple

from rubricem_env.domain.base import REPLACEMENT
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.scaffold.grammar import CITE, DEFAULT, MAX_SCAFFOLDS, Grammar, Role, alternatives, grammar_of
from rubricem_env.scaffold.untrusted import GAP, spaced_names
from rubricem_env.scaffold.violation import Code, Violation, violation

_VALUE = r"""(?:"[^"<]{0,2000}+"|'[^'<]{0,2000}+'|[^\s"'<>][^\s<>]{0,2000}+)"""
_ATTRIBUTES = rf"(?:\s{{1,16}}+[\w:.-]{{1,64}}+(?:\s{{0,4}}+=\s{{0,4}}+{_VALUE})?+){{0,16}}+\s{{0,16}}+/?"
_FLAGS = re.ASCII | re.IGNORECASE  # ASCII: no Kelvin sign for k, no long s for s


def _tag_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Tags of those names: attributes as written, well formed or, where quotes do not balance, anything short."""
    return re.compile(rf"<(/?)({alternatives(tuple(names))})(?![\w-])(?:({_ATTRIBUTES})|([^<>]{{0,2000}}+))>", _FLAGS)


_CITATION = _tag_pattern((CITE,))
_BEGINNING = re.compile(r"</?([a-z_]*)", _FLAGS)
_ATTRIBUTE = re.compile(rf"([\w:.-]{{1,64}}+)(?:\s*=\s*({_VALUE}))?", _FLAGS)
_LOOSE_ATTRIBUTE = re.compile(r"""([\w:.-]{1,64}+)\s*=\s*["']?([^"'<>]*)""", _FLAGS)
_LONE_ATTRIBUTE = re.compile(r'\s([a-z]{1,64}+)="([^"<\s]{0,64}+)"', _FLAGS & ~re.IGNORECASE)
"""The usual form: one name, one plain value."""
_QUOTES = "\"'`\u2018\u2019\u201c\u201d\\"

MAX_TAG = 40_000
"""No tag is longer than this; the scanner never keeps back more."""


class Token(NamedTuple):
    """One tag in a text."""

    name: str
    """The canonical name of the tag."""
    role: Role
    tag: str
    """The whole tag, as it is written."""
    written: str
    """Its name as written: may be an alias, in any case."""
    closing: bool
    empty: bool
    """The tag ends in `/>`: it opens and closes at once."""
    attributes: str
    well_formed: bool
    start: int
    end: int

    @property
    def is_plain(self) -> bool:
        """Canonical, lower case and without attributes, as most tags are."""
        return len(self.tag) == len(self.name) + 2 + self.closing and self.written == self.name


class Lexer(NamedTuple):
    """The patterns of a scaffold's tags."""

    grammar: Grammar
    tag: re.Pattern[str]
    structure: re.Pattern[str]
    """Any tag but a citation."""
    decided: re.Pattern[str]
    """A well-formed tag, which more text cannot change."""
    plain: Mapping[str, tuple[str, Role, bool]]
    """By tag as it is written, where it is plain: its name, its role, and whether it closes."""
    character_tag: str
    """What a character may begin that looks like `<`, to be a tag in disguise."""
    false_tag: str

    def token(self, match: re.Match[str], offset: int = 0) -> Token:
        """The tag of a match; `offset` is where the searched text begins."""
        tag = match[0]
        start = match.start() + offset
        plain = self.plain.get(tag)
        if plain is not None:
            name, role, closing = plain
            return Token(name, role, tag, name, closing, False, "", True, start, start + len(tag))
        slash, written, attributes, fallback = match.groups()
        well_formed = attributes is not None
        if not well_formed:
            attributes = fallback
        canonical, roles = self.grammar.canonical, self.grammar.roles
        name = canonical.get(written) or canonical[written.lower()]
        closing = slash == "/"
        empty = not closing and attributes[-1:] == "/"
        return Token(name, roles[name], tag, written, closing, empty, attributes, well_formed, start, start + len(tag))


@lru_cache(maxsize=MAX_SCAFFOLDS)
def lexer_of(scaffold: Scaffold) -> Lexer:
    """The patterns of a scaffold, compiled once."""
    grammar = grammar_of(scaffold)
    canonical = grammar.canonical
    names = grammar.alternatives
    return Lexer(
        grammar=grammar,
        tag=_tag_pattern(canonical),
        structure=_tag_pattern(name for name, meant in canonical.items() if meant != CITE),
        decided=re.compile(rf"<(/?)({names})(?![\w-])({_ATTRIBUTES})>", _FLAGS),
        plain={
            f"<{slash}{name}>": (name, role, slash == "/")
            for name, role in grammar.roles.items()
            for slash in ("", "/")
        },
        character_tag=rf"{GAP}/?{GAP}(?:{spaced_names(canonical)})(?![\w-])",
        false_tag=rf"<(?!/?(?:{names})(?![\w-])[^<>]*+>)",
    )


def find_tags(text: str, scaffold: Scaffold = DEFAULT) -> list[Token]:
    """Every tag of a whole text, in order."""
    lexer = lexer_of(scaffold)
    return [lexer.token(match) for match in lexer.tag.finditer(text)]


def find_structure(text: str, scaffold: Scaffold = DEFAULT) -> list[Token]:
    """Every tag except citations, which can be many and do not affect the structure."""
    lexer = lexer_of(scaffold)
    return [lexer.token(match) for match in lexer.structure.finditer(text)]


def find_citation_tags(text: str) -> list[Token]:
    """The citation tags of an answer, in a scaffold that has citations."""
    token = lexer_of(DEFAULT).token
    return [token(match) for match in _CITATION.finditer(text)]


def parse_attributes(token: Token) -> tuple[dict[str, str], bool]:
    """The attributes by lower-case name, and whether they are well formed, with each name once.

    Quotes may be double, single, typographic, backticks, escaped, unclosed or missing. The first of two equal names
    wins.
    """
    lone = _LONE_ATTRIBUTE.fullmatch(token.attributes)
    if lone is not None:
        return {lone[1]: lone[2]}, True
    values: dict[str, str] = {}
    is_clean = token.well_formed
    pattern = _ATTRIBUTE if token.well_formed else _LOOSE_ATTRIBUTE
    for match in pattern.finditer(token.attributes):
        name = match[1].lower()
        value = match[2]
        if name in values:
            is_clean = False
            continue
        value = value or ""
        is_quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
        values[name] = value[1:-1].strip() if is_quoted else value.strip(_QUOTES)
    return values, is_clean


class Scanner:
    """Finds tags in text that arrives in pieces: any split gives the tokens of `find_structure` on the whole."""

    def __init__(self, scaffold: Scaffold = DEFAULT) -> None:
        self._lexer = lexer_of(scaffold)
        self._pending = ""
        self._offset = 0

    def feed(self, piece: str) -> list[Token]:
        """Take the next piece; return the tags that more text can no longer change."""
        text = self._pending + piece
        if self._pending and "<" not in piece and ">" not in piece and len(text) <= MAX_TAG:
            self._pending = text  # still the same unfinished candidate: not looked at again before it can end
            return []
        lexer = self._lexer
        decided = _first_undecided(text, lexer)
        tokens = [lexer.token(match, self._offset) for match in lexer.structure.finditer(text, 0, decided)]
        self._pending = text[decided:]
        self._offset += decided
        return tokens

    def close(self) -> list[Token]:
        """End of the text: return the tags in the text that was kept back."""
        lexer = self._lexer
        tokens = [lexer.token(match, self._offset) for match in lexer.structure.finditer(self._pending)]
        self._offset += len(self._pending)
        self._pending = ""
        return tokens


def _first_undecided(text: str, lexer: Lexer) -> int:
    """Only the last `<` can still become a tag, or a longer one: every candidate ends before the next `<`."""
    last = text.rfind("<")
    if last < 0 or len(text) - last > MAX_TAG or lexer.decided.match(text, last):
        return len(text)
    canonical = lexer.grammar.canonical
    beginning = _BEGINNING.match(text, last)
    word = beginning[1].lower() if beginning else ""
    at_end = beginning is not None and beginning.end() == len(text)
    can_be_a_tag = any(name.startswith(word) for name in canonical) if at_end else word in canonical
    return last if can_be_a_tag else len(text)


_CONTROL = "".join(map(chr, (*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F)))
_WIDE_CONTROL = "".join(map(chr, (*range(0x80, 0xA0), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))))
_BROKEN = re.compile(f"[\ud800-\udfff{REPLACEMENT}]")

_CHARACTER_FLAGS = re.IGNORECASE | re.ASCII
_LOOKALIKES = ("&lt;", *"\uff1c\ufe64\u2039")


@cache
def _false_tag(opener: str, body: str) -> re.Pattern[str]:
    """Compiled when first searched for, which is when the opener occurs in a text."""
    return re.compile(opener + body, _CHARACTER_FLAGS)


def suspicious_characters(text: str, turn: int, *, tags: int = 0, scaffold: Scaffold = DEFAULT) -> list[Violation]:
    """One violation for each kind that occurs: broken Unicode, control characters, lookalike tags.

    `tags` is the number of known tags in the text; if that is every `<`, none of them is checked again.
    """
    violations: list[Violation] = []
    # One search for each character is ten times as fast as a character class: each is a plain memory search.
    unseen = _CONTROL if text.isascii() else _CONTROL + _WIDE_CONTROL
    control = [char for char in unseen if char in text]
    if control:
        first = min(control, key=text.index)
        violations.append(violation(Code.CONTROL_CHARACTER, turn, f"U+{ord(first):04X}", text.index(first)))
    broken = None if text.isascii() else _BROKEN.search(text)
    if broken:
        violations.append(violation(Code.INVALID_UNICODE, turn, f"U+{ord(broken[0]):04X}", broken.start()))
    lookalike = _find_lookalike(text, tags, scaffold)
    if lookalike:
        violations.append(violation(Code.LOOKALIKE_TAG, turn, lookalike[0], lookalike.start()))
    return violations


def _find_lookalike(text: str, tags: int, scaffold: Scaffold) -> re.Match[str] | None:
    """The first of the first kind that occurs."""
    # A search for a literal is the cheapest.
    openers = [opener for opener in _LOOKALIKES if opener in text]
    if text.count("<") > tags:
        openers.insert(0, lexer_of(scaffold).false_tag)
    for opener in openers:
        match = _false_tag(opener, lexer_of(scaffold).character_tag).search(text)
        if match is not None:
            return match
    return None
