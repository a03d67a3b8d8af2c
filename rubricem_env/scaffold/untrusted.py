r"""Neutralizes foreign text: nothing in it is read as structure.

`neutralize` adds a backslash to everything that looks like a scaffold tag or a chat special token: `</tool_output>`
becomes `<\/tool_output>`, `<|im_end|>` becomes `<\|im_end|>`. Backslashes after the opening character grow by one, so
that `restore` undoes it byte for byte. `fold` makes texts comparable that look alike. `ShownText` finds long copies of
what a policy was shown: rubrics and lessons must not contain them.
"""

import html
import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from rubricem_env.scaffold.grammar import RESERVED

# Invisible characters, which a language model ignores.
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
_INJECTION = rf"(?={_TAG_BODY}|{GAP}[|\uff5c])"
_BRACKET_INJECTION = rf"(?=/?(?:{_BRACKETED})\])"
_FLAGS = re.IGNORECASE | re.ASCII
_INJECTIONS = {**dict.fromkeys(_OPENERS, _INJECTION), "[": _BRACKET_INJECTION}


@cache
def _patterns(opener: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What begins with the opener and is a threat, and the same neutralized.

    By opener, since a search for one literal character is many times as fast as one for an alternative of them. Compiled
    when the opener first occurs: compiling them all takes a third of a second.
    """
    start, injection = re.escape(opener), _INJECTIONS[opener]
    return re.compile(rf"{start}(?=\\*+{injection})", _FLAGS), re.compile(rf"{start}\\(?=\\*+{injection})", _FLAGS)


def neutralize(text: str) -> str:
    """The text with every reserved tag and chat special token neutralized; all other text is unchanged."""
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


# NFKD makes fullwidth, mathematical and circled letters plain by itself, except white ones on black.
_LOOKALIKES = str.maketrans(
    "аеорсухікѕјһԁԛԝѵӏмтвАВЕНІЈКМОРСТХЅԌҮӀ"  # Cyrillic
    "αεικνορτυχγηωΑΒΕΖΗΙΚΜΝΟΡΤΥΧ"  # Greek
    "օոսհցզաեքռՕՏԼՍ"  # Armenian
    "ᎠᎡᎢᎥᎪᎫᎬᎳᎷᎻᎾᏀᏃᏏᏒᏔᏕᏚᏙᏞᏟᏢᏦᏴᏻ"  # Cherokee
    "ꓐꓑꓒꓓꓔꓖꓗꓙꓚꓜꓝꓟꓠꓡꓢꓣꓦꓧꓪꓫꓬꓮꓰꓲꓳꓴ"  # Lisu
    "ıłøđħŧɑɡɩƒØŁĐᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ",  # Latin beyond ASCII
    "aeopcyxiksjhdqwvlmtbABEHIJKMOPCTXSGYI"
    "aeiknoptuxynwABEZHIKMNOPTYX"
    "onuhgqwtpnOSLU"
    "DRTiAJEWMHOGZbRWSSVLCPKBG"
    "BPdDTGKJCZFMNLSRVHWXYAEIOU"
    "ilodhtagifOLDabcdefghijklmnoprstuvwyz",
) | {start + index: chr(65 + index) for start in (0x1F150, 0x1F170) for index in range(26)}
_LOOKALIKES |= {
    code + 0x97D0: plain for code, plain in _LOOKALIKES.items() if 0x13A0 <= code < 0x13F0
}  # small Cherokee
_BLANKS = str.maketrans(dict.fromkeys("\u115f\u1160\u2800", " "))
_NOT_SHOWN = frozenset({"Cf", "Mn", "Me"})


def fold(text: str) -> str:
    """The text as a reader sees it, to compare and to search: other forms of a letter become the plain one.

    HTML entities are resolved, and letters that look like Latin ones become those. Characters that show nothing go, and
    so do marks above and below letters; characters that only look empty become spaces. Case, spaces and punctuation stay.
    """
    for _ in range(2):  # "&amp;lt;" is "&lt;" is "<"
        text = html.unescape(text)
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKD", text).translate(_BLANKS)
    shown = "".join(char for char in plain if unicodedata.category(char) not in _NOT_SHOWN)
    return unicodedata.normalize("NFKC", shown).translate(_LOOKALIKES)
