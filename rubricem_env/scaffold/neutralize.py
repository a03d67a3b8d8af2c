r"""Makes foreign text inert: what looks like a tag of ours or a chat special gets a backslash, and can be had back.

`</tool_output>` becomes `<\/tool_output>`, `<|im_end|>` becomes `<\|im_end|>`. A run of backslashes after the
opening character grows by one, so `restore` undoes it byte for byte, also on text that held such runs before.
"""

import re
from collections.abc import Iterable

from rubricem_env.scaffold.grammar import RESERVED

# Characters that a reader does not see and a language model reads through.
_UNSEEN = (
    "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff\x00-\x20\x7f-\xa0"
)
GAP = f"[{_UNSEEN}]*+"
_OPENERS = "<\uff1c\ufe64\u2039"
# Written like tags by the chat templates of Qwen, Gemma and Llama 2, and in square brackets by those of Mistral.
_CHAT_TAGS = (
    *("tool_call", "tool_response", "tools", "start_of_turn", "end_of_turn", "start_of_image", "end_of_image"),
    *("s", "bos", "eos", "pad", "unk", "sys", "system", "user", "assistant"),
)
_BRACKETED = (
    "inst|available_tools|tool_(?:calls|results|content)|system_prompt|think|args|call_id|prefix|middle|suffix|img"
)


def spaced_names(names: Iterable[str]) -> str:
    """A pattern for any of the names, with unseen characters allowed between their letters."""
    longest_first = sorted(names, key=len, reverse=True)
    return "|".join(GAP.join(re.escape(char) for char in name) for name in longest_first)


_TAG_BODY = rf"{GAP}/?{GAP}(?:{spaced_names((*RESERVED, *_CHAT_TAGS))})(?![\w-])"
# <tag ...>, <|special|> and [INST]; the look-ahead leaves all but the opener and its backslashes alone.
_BAIT = rf"(?={_TAG_BODY}|{GAP}[|\uff5c])"
_BRACKET_BAIT = rf"(?=/?(?:{_BRACKETED})\])"
_FLAGS = re.IGNORECASE | re.ASCII
# By opener, since a search for one literal character is many times as fast as one for an alternative of them.
_PATTERNS = tuple(
    (
        opener,
        re.compile(rf"{re.escape(opener)}(?=\\*+{bait})", _FLAGS),
        re.compile(rf"{re.escape(opener)}\\(?=\\*+{bait})", _FLAGS),
    )
    for opener, bait in (*((opener, _BAIT) for opener in _OPENERS), ("[", _BRACKET_BAIT))
)


def neutralize(text: str) -> str:
    """The text with every reserved tag and chat special defused; anything else is untouched."""
    for opener, threat, _ in _PATTERNS:
        if opener in text:
            text = threat.sub(rf"{opener}\\", text)
    return text


def restore(text: str) -> str:
    """The inverse of `neutralize`, byte for byte."""
    for opener, _, defused in _PATTERNS:
        if opener in text:
            text = defused.sub(opener, text)
    return text
