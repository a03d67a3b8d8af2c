"""Finds addresses in a text: whatever could be opened, also in disguise."""

import html
import re
from ipaddress import ip_network
from urllib.parse import unquote

from rubricem_env.scaffold.copies import ShownText
from rubricem_env.scaffold.folding import fold
from rubricem_env.scaffold.speech import TABLES

_FLAGS = re.IGNORECASE
_DOMAINS: str = TABLES["top_domains"]
_MORE_DOMAINS: str = TABLES["more_top_domains"]
"""Written small or large throughout: "results.In" is the end of a sentence."""
_LOCATOR = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,20}\s?:\s?//|\bhxxps?\b|\bwww\s?\.|\b(?:data:[a-z]+/|javascript:\S|mailto:)|\blocalhost:\d"
    r"|\b[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}"
    r"|(?<![\w:])(?:(?:[0-9a-f]{1,4}:){5,7}[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){1,7}:(?:[0-9a-f]{1,4}:?){0,6})(?![\w:])"
    r"|\[::[\w:]*\]"
    rf"|\b[a-z0-9-]{{2,63}}\s(?:\.|dot)\s(?:{_DOMAINS})\b|\b(?=[0-9-]*[a-z])[a-z0-9-]{{1,63}}\s?[\[({{]\s?(?:[.。]"
    rf"|dot)\s?[\])}}]\s?[a-z]{{2,}}\b"
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
    r"(?<![\w.])(?<!section )(?<!sections )(?<!clause )(?<!article )(?<!version )(?<!§ )(?:\d{1,3}\.){3}\d{1,3}(?![\w]"
    r"|\.\d)",
    _FLAGS,
)
_PREFIX = re.compile(r"/\d{1,2}(?![\w/?#%:]|\.\w)", re.ASCII)
_RESTRICTED = re.compile(
    r"(?:^|\.)(?:gov|edu|mil|int|europa\.eu|(?:gov|ac|edu|nhs|gc|gob|gouv|go|mil)\.[a-z]{2}|gc\.ca|gouv\.fr"
    r"|admin\.ch)$",
    _FLAGS,
)
"""Registries that give names to institutions alone: nobody else can own such a host."""
PUBLIC_SITES = frozenset(TABLES["public_sites"].split())
"""Sites that a lesson may name as a source, wherever it knows them from.

A name without a path opens nothing but these.
"""
_WINDOW = 64
"""Characters before and after a host that decide about it."""
_FILE = re.compile(r"\.(?:py|md|pt|rs|so|ps|pl|ml|sh|cc)$")
_MOTION = re.compile(
    r"\b(?:go\s+to|visit|fetch|open|ask|see|use|try|from|at|on|via|load|download|browse|contact|trust|cites?"
    r"|start\s+at)\s+(?:the\s+)?[\"'`(]?$",
    _FLAGS,
)


def find_address(text: str, shown: ShownText | None) -> str | None:
    """The first address.

    The bare name of a public site is none, nor one that the policy knows and no page has shown.
    """
    folded = " ".join(fold(decoded(text)).split())
    locator = _LOCATOR.search(folded)
    if locator is not None:
        return locator[0]
    for ip in _IP.finditer(folded):
        if _is_private_network(ip[0], folded[ip.end() : ip.end() + _WINDOW]):
            continue
        octets = [int(part) for part in ip[0].split(".")]
        if max(octets) <= 255 and sum(octet > 9 for octet in octets) > 0:
            return ip[0]
    return next((dotted[0] for dotted in _DOTTED.finditer(folded) if _is_address(dotted, folded, shown)), None)


def _is_private_network(address: str, after: str) -> bool:
    """Whether it is written as a network that stands for itself, such as 10.0.0.0/8: no page is fetched from there."""
    prefix = _PREFIX.match(after)
    if prefix is None:
        return False
    try:
        return ip_network(f"{address}{prefix[0]}").is_private
    except ValueError:
        return False


def _is_address(dotted: re.Match[str], text: str, shown: ShownText | None) -> bool:
    labels = dotted["host"].replace("。", ".").split(".")
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
    before = text[max(0, dotted.start() - _WINDOW) : dotted.start()]
    after = text[dotted.end() : dotted.end() + _WINDOW]
    if dotted["path"]:
        return True
    if _RESTRICTED.search(host) or any(host == site or host.endswith(f".{site}") for site in PUBLIC_SITES):
        return False
    if _MOTION.search(before):
        return True
    # The party of a case, a program's file, or a name that the policy knows and no page of the attempt has shown.
    is_party = re.match(r"\s+v\.?\s", after) or re.search(r"\bv\.?\s+$", before)
    label = labels[tops[-1] - 1]
    is_own = shown is not None and dotted[0][0].isupper() and len(label) > 2 and not shown.mentions(label)
    return not (is_party or _FILE.search(host) or is_own)


def decoded(text: str) -> str:
    """Escapes of addresses and of program text resolved, twice at most."""
    for _ in range(2):
        text = html.unescape(text)
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), text)
    return unquote(text) if re.search(r"%[0-9a-fA-F]{2}", text) else text
