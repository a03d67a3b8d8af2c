"""What a text must not hold to be remembered: addresses, keys, markup, machine syntax, unseen characters, foreign speech.

Rubrics and lessons outlive the pages and policies that they come from, so both gates ask here. What counts is structure
and provenance: whether a name could be opened, whether a tag could be read, whether the page brought the host. Copies of
pages are found by `copies`, orders and requests by `speech`. All text is folded before it is matched, so that lookalike
letters and invisible characters hide nothing.
"""

import html
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple
from urllib.parse import unquote

from rubricem_env.scaffold.copies import ShownText
from rubricem_env.scaffold.folding import fold
from rubricem_env.scaffold.grammar import RESERVED
from rubricem_env.scaffold.speech import TABLES, find_foreign, find_misplaced, find_speech
from rubricem_env.scaffold.untrusted import neutralize

_FLAGS = re.IGNORECASE
FaultCode = Literal["unseen", "address", "key", "markup", "tool_call", "score_request", "order", "script"]
Kind = Literal["criterion", "lesson", "question"]


class Fault(NamedTuple):
    """What makes a text unfit to be remembered."""

    code: FaultCode
    sentence: str
    """As in "holds an address"."""
    passage: str

    @property
    def shown(self) -> str:
        """The passage, safe to print."""
        plain = self.passage
        plain = plain if plain.isprintable() else plain.encode("unicode_escape").decode("ascii")
        return repr(plain if len(plain) <= 60 else plain[:57] + "...")


_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Nothing to see, beside what Unicode itself calls controls, formats, private, or not assigned."""
_UNSEEN_KINDS = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_VARIANTS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_MOST_MARKS = 4
"""Above and below one letter; more hide text."""


def _find_unseen(text: str) -> str | None:
    before, marks = " ", 0
    for char in text:
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        if marks > _MOST_MARKS or (_is_hidden(char) and not _needs(before, char)):
            return char
        before = char
    return None


def _is_hidden(char: str) -> bool:
    if char in "\t\n\r":
        return False
    return unicodedata.category(char) in _UNSEEN_KINDS or char in _BLANKS or bool(_VARIANTS.match(char))


def _needs(before: str, char: str) -> bool:
    """Persian, Hindi and emoji are written with joiners, and emoji with a variant."""
    if char in "\u200c\u200d":
        return not before.isascii()
    return bool(_VARIANTS.match(char)) and unicodedata.category(before) == "So"


_DOMAINS: str = TABLES["top_domains"]
_MORE_DOMAINS: str = TABLES["more_top_domains"]
"""Written small or large throughout: "results.In" is the end of a sentence."""
_LOCATOR = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,20}\s?:\s?//|\bhxxps?\b|\bwww\s?\.|\b(?:data:[a-z]+/|javascript:\S|mailto:)|\blocalhost:\d"
    r"|\b[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}"
    r"|(?<![\w:])(?:(?:[0-9a-f]{1,4}:){5,7}[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){1,7}:(?:[0-9a-f]{1,4}:?){0,6})(?![\w:])|\[::[\w:]*\]"
    rf"|\b[a-z0-9-]{{2,63}}\s(?:\.|dot)\s(?:{_DOMAINS})\b|\b(?=[0-9-]*[a-z])[a-z0-9-]{{1,63}}\s?[\[({{]\s?(?:[.。]|dot)\s?[\])}}]\s?[a-z]{{2,}}\b"
    rf"|\b[a-z0-9-]{{2,63}}[\[({{]\w{{1,7}}[\])}}](?:{_DOMAINS})\b|\b0x[0-9a-f]{{8}}\b",
    _FLAGS,
)
"""What can be opened as it stands, or is disguised so that it can."""
_TOP = frozenset(_DOMAINS.split("|"))
_MORE_TOP = frozenset(_MORE_DOMAINS.split("|"))
_DOTTED = re.compile(
    r"(?<![a-z0-9.。-])(?P<host>[a-z0-9-]{1,63}+(?:[.。][a-z0-9-]{1,63}+)++)(?![a-z0-9_-])(?P<path>[/:?#][^\s.,;)]\S*)?",
    _FLAGS | re.ASCII,
)
"""Words with dots between them; whether they are a host, their parts say."""
_IP = re.compile(
    r"(?<![\w.])(?<!section )(?<!sections )(?<!clause )(?<!article )(?<!version )(?<!§ )(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)",
    _FLAGS,
)
_RESTRICTED = re.compile(
    r"(?:^|\.)(?:gov|edu|mil|int|europa\.eu|(?:gov|ac|edu|nhs|gc|gob|gouv|go|mil)\.[a-z]{2}|gc\.ca|gouv\.fr|admin\.ch)$",
    _FLAGS,
)
"""Registries that give names to institutions alone: nobody else can own such a host."""
PUBLIC_SITES = frozenset(TABLES["public_sites"].split())
"""Sites that a lesson may name as a source wherever it knows them from; a name without a path opens nothing but these."""
_WINDOW = 64
"""Characters before and after a host that decide about it."""
_FILE = re.compile(r"\.(?:py|md|pt|rs|so|ps|pl|ml|sh|cc)$")
_MOTION = re.compile(
    r"\b(?:go\s+to|visit|fetch|open|ask|see|use|try|from|at|on|via|load|download|browse|contact|trust|cites?|start\s+at)\s+(?:the\s+)?[\"'`(]?$",
    _FLAGS,
)


def find_address(text: str, shown: ShownText | None) -> str | None:
    """The first address. The bare name of a public site is none, nor one that the policy knows and no page has shown."""
    folded = " ".join(fold(_decoded(text)).split())
    found = _LOCATOR.search(folded)
    if found is not None:
        return found[0]
    for ip in _IP.finditer(folded):
        octets = [int(part) for part in ip[0].split(".")]
        if max(octets) <= 255 and sum(octet > 9 for octet in octets) > 0:
            return ip[0]
    return next((dotted[0] for dotted in _DOTTED.finditer(folded) if _is_address(dotted, folded, shown)), None)


def _is_address(found: re.Match[str], text: str, shown: ShownText | None) -> bool:
    labels = found["host"].replace("。", ".").split(".")
    tops = [
        at
        for at in range(1, len(labels))
        if (
            labels[at].lower() in _TOP
            or ({labels[at]} & {labels[at].lower(), labels[at].upper()} and labels[at].lower() in _MORE_TOP)
        )
        and re.search("[a-z]", labels[at - 1], _FLAGS)
    ]
    if not tops:
        return False
    # The last part that ends a host counts: "cdc.gov.evil.com" is none of cdc.gov.
    host = ".".join(labels[: tops[-1] + 1]).lower()
    # A window, since a text of many names would be copied once for each.
    before = text[max(0, found.start() - _WINDOW) : found.start()]
    after = text[found.end() : found.end() + _WINDOW]
    if found["path"]:
        return True
    if _RESTRICTED.search(host) or any(host == site or host.endswith(f".{site}") for site in PUBLIC_SITES):
        return False
    if _MOTION.search(before):
        return True
    # The party of a case, a program's file, or a name that the policy knows and no page of the attempt has shown.
    is_party = re.match(r"\s+v\.?\s", after) or re.search(r"\bv\.?\s+$", before)
    label = labels[tops[-1] - 1]
    is_own = shown is not None and found[0][0].isupper() and len(label) > 2 and not shown.mentions(label)
    return not (is_party or _FILE.search(host) or is_own)


_KEY = re.compile(
    r"\bAIza[\w-]{20,}|\bya29\.[\w-]{20,}|\bsk-[\w-]{16,}|\bgh[oprsu]_\w{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{12,}|\bhf_\w{16,}|\bxox[abeprs]-[\w-]{10,}|\beyJ[\w-]{10,}\.[\w-]{10,}|-----BEGIN [A-Z ]*KEY"
    # Whatever its service: long, of letters and digits, without a space.
    r"|\b[rsp]k_(?:live|test)_\w{10,}|\b(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{32,}"
)
_MARKUP = re.compile(r"</?[a-z][\w:-]*(?:\s[^<>]*)?/?>|<!--|<!\[|<<<|>>>|!?\[[^\]\n]{0,200}\]\([^)\n]{1,500}\)", _FLAGS)
_NAMES = "|".join(sorted(RESERVED, key=len, reverse=True))
_ODD_BRACKETS = re.compile(rf"[⟨〈《‹«˂]\s*/?\s*(?:{_NAMES})\s*[⟩〉》›»˃]", _FLAGS)
_WRITTEN_TAGS = "answer|think|cite|review|structured_plan|rubric|research_plan|deep_analysis|state_evaluation|rubric_review|writing_plan"
_MENTION = re.compile(rf"(?<=[\w,;:] )[`\"']?</?(?:{_WRITTEN_TAGS})>[`\"']?(?=[ ,.;:)]|$)")
"""The bare name of a tag in a sentence: after a word, and before a space or a stop."""
_TOKEN_NAMES = re.compile(r"(?<=[\w,;:] )[`\"']?</?(?:pad|s|bos|eos|unk|mask|cls|sep)>[`\"']?(?=[ ,.;:)]|$)")
_MACHINE_CALL = re.compile(
    r"[\"'](?:name|tool|tool_name|function|arguments|parameters|tool_calls?)[\"']\s*:"
    r"|\b(?:google_search|snippet_search|browse_webpage|fetch_page|call_tool|os\.system|subprocess\.\w+)\s*\("
    r"|\b(?:curl|wget)\s+(?:-|\S+\s*\||\S+/)|\brm\s+-[rf]|\bsudo\s+\w|\bpip\s+install\b|<call_tool\b|```",
    _FLAGS,
)


def _decoded(text: str) -> str:
    """Escapes of addresses and of program text resolved, twice at most."""
    for _ in range(2):
        text = html.unescape(text)
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
    return unquote(text) if re.search(r"%[0-9a-fA-F]{2}", text) else text


def find_markup(text: str, *, allows_mentions: bool) -> str | None:
    """A tag of ours in any disguise that the scaffold knows, a chat special, or anything else that looks like a tag.

    A sentence may name a token of a tokenizer, and a lesson a tag that attempts are written with, each in its plain form.
    """
    text = _TOKEN_NAMES.sub("TOKEN", _MENTION.sub("TAG", text) if allows_mentions else text)
    for form in (text, fold(text), _decoded(text)):
        defused = neutralize(form)
        if defused != form:
            at = next(index for index, (one, two) in enumerate(zip(form, defused, strict=False)) if one != two)
            return form[max(0, at - 1) : at + 30]
    folded = " ".join(fold(text).split())
    found = _MARKUP.search(folded) or _ODD_BRACKETS.search(folded)
    return found and found[0]


def find_fault(text: str, kind: Kind, *, shown: ShownText | None = None, question: str = "") -> Fault | None:
    """Why the text may not be remembered, or None. `shown` is what tools have shown, None where that is not known."""
    folded = " ".join(fold(text).split())
    checks: Sequence[tuple[FaultCode, str, Callable[[], str | None]]] = (
        ("unseen", "holds a character that nobody sees", lambda: _find_unseen(text)),
        ("address", "holds an address", lambda: find_address(text, shown)),
        ("key", "holds what looks like a key", lambda: _first(_KEY, folded)),
        ("markup", "holds markup", lambda: find_markup(text, allows_mentions=kind == "lesson")),
        ("tool_call", "holds the syntax of a tool call", lambda: _first(_MACHINE_CALL, folded)),
    )
    for code, sentence, find in checks:
        passage = find()
        if passage is not None:
            return Fault(code, sentence, passage)
    speech = find_speech(text)
    if speech is None and kind != "question":
        speech = find_misplaced(text, is_criterion=kind == "criterion")
    if speech is not None:
        code, passage = speech
        return Fault(code, "gives an order to a model" if code == "order" else "speaks to a judge", passage)
    foreign = find_foreign(text, question)
    return Fault("script", "is in a language that is not the question's", foreign) if foreign else None


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found and found[0]
