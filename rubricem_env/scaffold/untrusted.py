r"""Makes foreign text inert: nothing in it is read as structure, by the scaffold or by a chat model.

`neutralize` adds a backslash to everything that looks like a scaffold tag or a control token of a chat model:
`</tool_output>` becomes `<\/tool_output>`, `<|im_end|>` becomes `<\|im_end|>`. Backslashes after the opening character
grow by one, so that `restore` undoes it byte for byte. `defuse` is for prompts: it touches control tokens alone, leaves
what is inert already, and is not undone.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache

from rubricem_env.domain.inputs import package_text
from rubricem_env.domain.trajectory import Segment
from rubricem_env.scaffold.grammar import ANSWER, CALL_TOOL, RESERVED, SNIPPET, TOOL_OUTPUT

# Invisible characters, which a language model ignores.
_UNSEEN = (
    "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff\x00-\x20\x7f-\xa0"
)
TERMINAL_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal, or change the direction of writing."""
GAP = f"[{_UNSEEN}]*+"
_OPENERS = "<\uff1c\ufe64\u2039"
_TABLES: Mapping[str, Mapping[str, str]] = json.loads(package_text("rubricem_env.scaffold", "control_tokens.json"))
CONTROL_TAGS = _TABLES["tags"]
"""By model family, what is a control token between angle brackets: regular expressions, separated by spaces.

Names that HTML has too count in their exact form alone. Tokens that begin with `<|` or `<\uff5c` need no list: those of
Llama 3 and 4, Phi, GPT, Granite, Kimi and DeepSeek."""
CONTROL_BRACKETS = _TABLES["brackets"]
"""The same between square brackets. Those of EXAONE begin with `[|`, those of MiniMax are `]~b]` and `[e~[`."""


def spaced_names(names: Iterable[str]) -> str:
    """A pattern for any of the names, with unseen characters allowed between their letters."""
    longest_first = sorted(names, key=len, reverse=True)
    return "|".join(GAP.join(re.escape(char) for char in name) for name in longest_first)


def _any_of(tokens: Mapping[str, str]) -> str:
    """By first letter, which is several times as fast as one long alternative."""
    by_letter: dict[str, list[str]] = {}
    for token in " ".join(tokens.values()).split():
        by_letter.setdefault(token[0], []).append(token[1:])
    return "|".join(f"{letter}(?:{'|'.join(rest)})" for letter, rest in by_letter.items())


_CLOSE = "(?=[>\uff1e\ufe65\u203a])"
_SHAPES = (
    rf"[a-z\d]++(?:_[a-z\d]++)++{_CLOSE}|[a-z]++:\w++{_CLOSE}|\w++(?=\|[>\uff1e])"
    rf"|(?-i:d?[A-Z][A-Z\d]+){_CLOSE}|[^\x00-\x7f]{{1,8}}+{_CLOSE}"
)
"""Tags as models have them and HTML has not, whatever the name and without attributes: <a_b>, <a:b>, <a|>, <AB>."""
_TAG_BODY = rf"{GAP}/?{GAP}(?:{spaced_names(RESERVED)}|{_any_of(CONTROL_TAGS)}|{_SHAPES})(?![\w-])"
_BAR = rf"{GAP}[|\uff5c]"
_BRACKET = rf"/?(?:{_any_of(CONTROL_BRACKETS)})\]|\|(?:system|user|assistant|tool|endofturn)\|\]|e~\["
# <tag ...>, <|special|>, [INST]; a look-ahead leaves all but the opener and its backslashes alone.
_INJECTIONS = {**dict.fromkeys(_OPENERS, f"{_TAG_BODY}|{_BAR}"), "[": _BRACKET, "]": r"~[!b]|<\]\w+\[>"}
# Falcon's >>QUESTION<< and OLMo's |||EMAIL_ADDRESS|||.
_INJECTIONS |= {">": r"(?-i:>[A-Z][A-Z\d_]{1,40}<<)", "|": r"(?-i:\|\|[A-Z][A-Z\d_]{1,40}\|\|\|)"}
_OWN = rf"(?:{'|'.join(RESERVED)})(?![\w-])"
_CONTROL = rf"{GAP}/?{GAP}(?:{_any_of(CONTROL_TAGS)}|(?!{_OWN})(?:{_SHAPES}))(?![\w-])|{_BAR}"
_FLAGS = re.IGNORECASE | re.ASCII


@cache
def _patterns(opener: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What begins with the opener and is a threat, and the same neutralized.

    By opener, since a search for one literal character is many times as fast as one for an alternative of them.
    Compiled when the opener first occurs: compiling them all takes a third of a second.
    """
    start = re.escape(opener)
    injection = _INJECTIONS[opener]
    threat = rf"{start}(?=\\*+(?:{injection}))"
    neutralized = rf"{start}\\(?=\\*+(?:{injection}))"
    return re.compile(threat, _FLAGS), re.compile(neutralized, _FLAGS)


@cache
def _control_token(opener: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(opener)}(?={_CONTROL if opener in _OPENERS else _INJECTIONS[opener]})", _FLAGS)


def neutralize(text: str) -> str:
    """The text with every reserved tag and control token neutralized; all other text is unchanged."""
    for opener in _INJECTIONS:
        if opener in text:
            text = _patterns(opener)[0].sub(rf"{opener}\\", text)
    return text


def restore(text: str) -> str:
    """The inverse of `neutralize`, byte for byte."""
    for opener in _INJECTIONS:
        if opener in text:
            text = _patterns(opener)[1].sub(opener, text)
    return text


def defuse(text: str) -> str:
    """The text without control tokens, however often it is defused; the scaffold's tags stay what they are."""
    for opener in _INJECTIONS:
        if opener in text:
            text = _control_token(opener).sub(rf"{opener}\\", text)
    return text


_EPISODE_TAGS = re.compile(
    rf'<(?:(?<=\A<){TOOL_OUTPUT}>\n|(?<=\n<)/{TOOL_OUTPUT}>\Z|(?<=^<){SNIPPET} id="[^"<>]*">|/{SNIPPET}>$'
    rf'|{CALL_TOOL} name="[\w.]*">query</{CALL_TOOL}>|{ANSWER}>\.\.\.</{ANSWER}>)',
    re.MULTILINE,
)
"""Where an episode writes tags around a tool's text, and the examples in its notices.

A literal first, to be searched fast.
"""


def is_inert(text: str) -> bool:
    """Whether nothing in a tool's text can be read as structure, except the tags that an episode writes around it."""
    bare = _EPISODE_TAGS.sub("", defuse(text))
    return neutralize(restore(bare)) == bare


def inert_tool_text(segment: Segment) -> str:
    """The text of a tool segment for a prompt: with its tags where an episode wrote it, else neutralized.

    A file may claim an observation for any text, so the text itself is checked too.
    """
    is_own = segment.observation is not None and is_inert(segment.text)
    return defuse(segment.text) if is_own else neutralize(segment.text)
