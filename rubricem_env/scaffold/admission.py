"""What a text must not hold to be remembered.

That is addresses, keys, markup, machine syntax, unseen characters and foreign speech.

Rubrics and lessons outlive the pages and policies that they come from, so both gates ask here. What counts is structure
and provenance: whether a name could be opened, whether a tag could be read, whether the page brought the host. Copies
of pages are found by `copies`, orders and requests by `speech`. All text is folded before it is matched, so that
lookalike letters and invisible characters hide nothing.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from rubricem_env.domain.scaffold import KEPT_TAGS, Scaffold
from rubricem_env.scaffold.addresses import decoded, find_address
from rubricem_env.scaffold.copies import ShownText
from rubricem_env.scaffold.folding import fold
from rubricem_env.scaffold.grammar import (
    CALL_TOOL,
    DEFAULT,
    MAX_SCAFFOLDS,
    SNIPPET,
    TOOL_OUTPUT,
    alternatives,
    grammar_of,
)
from rubricem_env.scaffold.speech import find_foreign, find_misplaced, find_speech
from rubricem_env.scaffold.unseen import find_unseen
from rubricem_env.scaffold.untrusted import neutralize

_FLAGS = re.IGNORECASE
FaultCode = Literal["unseen", "address", "key", "markup", "tool_call", "score_request", "order", "script"]
Kind = Literal["criterion", "lesson", "question"]


class Fault(NamedTuple):
    """What makes a text unfit to be remembered."""

    code: FaultCode
    sentence: str
    """What is wrong, as in "holds an address"."""
    passage: str

    @property
    def shown(self) -> str:
        """The passage, safe to print."""
        plain = self.passage
        plain = plain if plain.isprintable() else plain.encode("unicode_escape").decode("ascii")
        return repr(plain if len(plain) <= 60 else plain[:57] + "...")


_KEY = re.compile(
    r"\bAIza[\w-]{20,}|\bya29\.[\w-]{20,}|\bsk-[\w-]{16,}|\bgh[oprsu]_\w{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{12,}|\bhf_\w{16,}|\bxox[abeprs]-[\w-]{10,}|\beyJ[\w-]{10,}\.[\w-]{10,}"
    r"|-----BEGIN [A-Z ]*KEY"
    # Whatever its service: long, of letters and digits, without a space.
    r"|\b[rsp]k_(?:live|test)_\w{10,}|\b(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{32,}"
)
_MARKUP = re.compile(r"</?[a-z][\w:-]*(?:\s[^<>]*)?/?>|<!--|<!\[|<<<|>>>|!?\[[^\]\n]{0,200}\]\([^)\n]{1,500}\)", _FLAGS)
_WRITTEN_BY_OTHERS = frozenset({CALL_TOOL, TOOL_OUTPUT, SNIPPET, *KEPT_TAGS})


@lru_cache(maxsize=MAX_SCAFFOLDS)
def _odd_brackets(scaffold: Scaffold) -> re.Pattern[str]:
    names = alternatives(grammar_of(scaffold).reserved)
    return re.compile(rf"[⟨〈《‹«˂]\s*/?\s*(?:{names})\s*[⟩〉》›»˃]", _FLAGS)


@lru_cache(maxsize=MAX_SCAFFOLDS)
def _mention(scaffold: Scaffold) -> re.Pattern[str]:
    """The bare name of a tag in a sentence: after a word, and before a space or a stop."""
    names = "|".join(name for name in grammar_of(scaffold).roles if name not in _WRITTEN_BY_OTHERS)
    return re.compile(rf"(?<=[\w,;:] )[`\"']?</?(?:{names})>[`\"']?(?=[ ,.;:)]|$)")


_TOKEN_NAMES = re.compile(r"(?<=[\w,;:] )[`\"']?</?(?:pad|s|bos|eos|unk|mask|cls|sep)>[`\"']?(?=[ ,.;:)]|$)")
_MACHINE_CALL = re.compile(
    r"[\"'](?:name|tool|tool_name|function|arguments|parameters|tool_calls?)[\"']\s*:"
    r"|\b(?:google_search|snippet_search|browse_webpage|fetch_page|call_tool|os\.system|subprocess\.\w+)\s*\("
    r"|\b(?:curl|wget)\s+(?:-|\S+\s*\||\S+/)|\brm\s+-[rf]|\bsudo\s+\w|\bpip\s+install\b|<call_tool\b|```",
    _FLAGS,
)


def find_markup(text: str, *, allows_mentions: bool, scaffold: Scaffold = DEFAULT) -> str | None:
    """A tag of ours in any disguise that the scaffold knows, a chat special, or anything else that looks like a tag.

    A sentence may name a token of a tokenizer, and a lesson a tag that attempts are written with, each in its plain
    form.
    """
    text = _TOKEN_NAMES.sub("TOKEN", _mention(scaffold).sub("TAG", text) if allows_mentions else text)
    for form in (text, fold(text), decoded(text)):
        defused = neutralize(form, scaffold)
        if defused != form:
            at = next(
                index for index, (before, after) in enumerate(zip(form, defused, strict=False)) if before != after
            )
            return form[max(0, at - 1) : at + 30]
    folded = " ".join(fold(text).split())
    match = _MARKUP.search(folded) or _odd_brackets(scaffold).search(folded)
    return match and match[0]


def find_fault(
    text: str, kind: Kind, *, shown: ShownText | None = None, question: str = "", scaffold: Scaffold = DEFAULT
) -> Fault | None:
    """Why the text may not be remembered, or None. `shown` is what tools have shown, None where that is not known."""
    folded = " ".join(fold(text).split())
    checks: Sequence[tuple[FaultCode, str, Callable[[], str | None]]] = (
        ("unseen", "holds a character that nobody sees", lambda: find_unseen(text)),
        ("address", "holds an address", lambda: find_address(text, shown)),
        ("key", "holds what looks like a key", lambda: _first(_KEY, folded)),
        ("markup", "holds markup", lambda: find_markup(text, allows_mentions=kind == "lesson", scaffold=scaffold)),
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
        sentence = "gives an order to a model" if speech.kind == "order" else "speaks to a judge"
        return Fault(speech.kind, sentence, speech.passage)
    foreign = find_foreign(text, question)
    return Fault("script", "is in a language that is not the question's", foreign) if foreign else None


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match and match[0]
