r"""Makes foreign text inert: nothing in it is read as structure, by the scaffold or by a chat model.

`neutralize` adds a backslash to everything that looks like a scaffold tag or a control token of a chat model:
`</tool_output>` becomes `<\/tool_output>`, `<|im_end|>` becomes `<\|im_end|>`. Backslashes after the opening character
grow by one, so that `restore` undoes it byte for byte. `defuse` is for prompts: it touches control tokens alone, leaves
what is inert already, and is not undone.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from rubricem_env.domain.inputs import package_text
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.trajectory import Segment
from rubricem_env.scaffold.grammar import CALL_TOOL, DEFAULT, MAX_SCAFFOLDS, SNIPPET, TOOL_OUTPUT, grammar_of

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
_BAR = rf"{GAP}[|\uff5c]"
_BRACKET = rf"/?(?:{_any_of(CONTROL_BRACKETS)})\]|\|(?:system|user|assistant|tool|endofturn)\|\]|e~\["
# [INST]; a look-ahead leaves all but the opener and its backslashes alone.
_INJECTIONS = {**dict.fromkeys(_OPENERS, ""), "[": _BRACKET, "]": r"~[!b]|<\]\w+\[>"}
# Falcon's >>QUESTION<< and OLMo's |||EMAIL_ADDRESS|||.
_INJECTIONS |= {">": r"(?-i:>[A-Z][A-Z\d_]{1,40}<<)", "|": r"(?-i:\|\|[A-Z][A-Z\d_]{1,40}\|\|\|)"}
"""What follows an opener of an injection. After `<` and its like that is `<tag ...>` and `<|special|>`, by scaffold."""
_FLAGS = re.IGNORECASE | re.ASCII


@lru_cache(maxsize=MAX_SCAFFOLDS * len(_INJECTIONS))
def _patterns(opener: str, scaffold: Scaffold) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What begins with the opener and is a threat, and the same neutralized.

    By opener, since a search for one literal character is many times as fast as one for an alternative of them.
    Compiled when the opener first occurs: compiling them all takes a third of a second.
    """
    start = re.escape(opener)
    injection = _INJECTIONS[opener]
    if opener in _OPENERS:
        names = spaced_names(grammar_of(scaffold).reserved)
        injection = rf"{GAP}/?{GAP}(?:{names}|{_any_of(CONTROL_TAGS)}|{_SHAPES})(?![\w-])|{_BAR}"
    threat = rf"{start}(?=\\*+(?:{injection}))"
    neutralized = rf"{start}\\(?=\\*+(?:{injection}))"
    return re.compile(threat, _FLAGS), re.compile(neutralized, _FLAGS)


@lru_cache(maxsize=MAX_SCAFFOLDS * len(_INJECTIONS))
def _control_token(opener: str, scaffold: Scaffold) -> re.Pattern[str]:
    control = _INJECTIONS[opener]
    if opener in _OPENERS:
        own = rf"(?:{'|'.join(grammar_of(scaffold).reserved)})(?![\w-])"
        control = rf"{GAP}/?{GAP}(?:{_any_of(CONTROL_TAGS)}|(?!{own})(?:{_SHAPES}))(?![\w-])|{_BAR}"
    return re.compile(rf"{re.escape(opener)}(?={control})", _FLAGS)


def neutralize(text: str, scaffold: Scaffold = DEFAULT) -> str:
    """The text with every reserved tag and control token neutralized; all other text is unchanged."""
    for opener in _INJECTIONS:
        if opener in text:
            text = _patterns(opener, scaffold)[0].sub(_with_backslash, text)
    return text


def _with_backslash(opener: re.Match[str]) -> str:
    """A function, since a template for a replacement is parsed at each call."""
    return opener[0] + "\\"


def restore(text: str, scaffold: Scaffold = DEFAULT) -> str:
    """The inverse of `neutralize`, byte for byte."""
    for opener in _INJECTIONS:
        if opener in text:
            text = _patterns(opener, scaffold)[1].sub(opener, text)
    return text


def defuse(text: str, scaffold: Scaffold = DEFAULT) -> str:
    """The text without control tokens, however often it is defused; the scaffold's tags stay what they are."""
    for opener in _INJECTIONS:
        if opener in text:
            text = _control_token(opener, scaffold).sub(_with_backslash, text)
    return text


@lru_cache(maxsize=MAX_SCAFFOLDS)
def _episode_tags(scaffold: Scaffold) -> re.Pattern[str]:
    """Where an episode writes tags around a tool's text, and the examples in its notices.

    A literal first, to be searched fast.
    """
    answer = scaffold.answer_tag
    return re.compile(
        rf'<(?:(?<=\A<){TOOL_OUTPUT}>\n|(?<=\n<)/{TOOL_OUTPUT}>\Z|(?<=^<){SNIPPET} id="[^"<>]*">|/{SNIPPET}>$'
        rf'|{CALL_TOOL} name="[\w.]*">query</{CALL_TOOL}>|{answer}>\.\.\.</{answer}>)',
        re.MULTILINE,
    )


def is_inert(text: str, scaffold: Scaffold = DEFAULT) -> bool:
    """Whether nothing in a tool's text can be read as structure, except the tags that an episode writes around it."""
    bare = _episode_tags(scaffold).sub("", defuse(text, scaffold))
    return neutralize(restore(bare, scaffold), scaffold) == bare


def inert_tool_text(segment: Segment, scaffold: Scaffold = DEFAULT) -> str:
    """The text of a tool segment for a prompt: with its tags where an episode wrote it, else neutralized.

    A file may claim an observation for any text, so the text itself is checked too.
    """
    is_own = segment.observation is not None and is_inert(segment.text, scaffold)
    return defuse(segment.text, scaffold) if is_own else neutralize(segment.text, scaffold)
