"""The write gate: decides which reflections may enter the bank, which outlives every page and policy they came from.

An accepted reflection appears in the prompts of later attempts. So it must be short guidance and nothing else: no
address, no key, no markup, no tool call, no order to a model, no request to a judge, no sentence copied from a page,
nothing that a person has removed. The question is shown with it and is checked alike. Lookalike letters and invisible characters are folded away before anything is matched. In
doubt the gate refuses: a wrong refusal costs the bank one item, a poisoned item costs every attempt that reads it.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from rubricem_agent.memory.store import text_digest
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.judgement import Reflection
from rubricem_env.scaffold.copies import ShownText
from rubricem_env.scaffold.folding import fold
from rubricem_env.scaffold.untrusted import neutralize

_FLAGS = re.IGNORECASE
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Nothing to see, beside what Unicode itself calls controls, formats, private, or not assigned."""
_UNSEEN_KINDS = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_VARIANTS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_MOST_MARKS = 4
"""Above and below one letter; more hide text."""

_DOMAINS = "com|org|net|edu|gov|mil|info|biz|io|onion|xyz|dev|app"
_MORE_DOMAINS = (
    "name|pro|online|site|website|web|link|top|page|zip|mov|cloud|tech|blog|wiki|live|news|world|today|email|space|store|shop|"
    "fun|icu|vip|club|work|life|ltd|group|agency|solutions|center|digital|network|systems|company|media|global|one|art|bot|"
    "chat|click|download|exchange|finance|health|host|press|science|studio|ac|ad|ae|af|ag|ai|al|am|ao|aq|ar|at|au|aw|ax|az|ba|"
    "bb|bd|be|bf|bg|bh|bi|bj|bm|bn|bo|br|bs|bt|bw|by|bz|ca|cc|cd|cf|cg|ch|ci|ck|cl|cm|cn|co|cr|cu|cv|cw|cx|cy|cz|de|dj|dk|dm|"
    "do|dz|ec|ee|eg|er|es|et|eu|fi|fj|fk|fm|fo|fr|ga|gd|ge|gf|gg|gh|gi|gl|gm|gn|gp|gq|gr|gs|gt|gu|gw|gy|hk|hm|hn|hr|ht|hu|id|"
    "ie|il|im|in|iq|ir|is|it|je|jm|jo|jp|ke|kg|kh|ki|km|kn|kp|kr|kw|ky|kz|la|lb|lc|li|lk|lr|ls|lt|lu|lv|ly|ma|mc|md|me|mg|mh|"
    "mk|ml|mm|mn|mo|mp|mq|mr|ms|mt|mu|mv|mw|mx|my|mz|na|nc|ne|nf|ng|ni|nl|no|np|nr|nu|nz|om|pa|pe|pf|pg|ph|pk|pl|pm|pn|pr|ps|"
    "pt|pw|py|qa|re|ro|rs|ru|rw|sa|sb|sc|sd|se|sg|sh|si|sj|sk|sl|sm|sn|so|sr|ss|st|su|sv|sx|sy|sz|tc|td|tf|tg|th|tj|tk|tl|tm|"
    "tn|to|tr|tt|tv|tw|tz|ua|ug|uk|us|uy|uz|va|vc|ve|vg|vi|vn|vu|wf|ws|ye|yt|za|zm|zw"
)
"""Written small or large throughout: "results.In" is the end of a sentence."""
_ADDRESS = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,20}\s?:\s?//|\bh(?:tt|xx)ps?\b\s*:|\bwww\s?\.|\b(?:data:[a-z]+/|javascript:|mailto:)"
    rf"|\blocalhost\b|\b(?=[0-9-]*[a-z])[a-z0-9-]{{1,63}}(?:[.。]|\s?[\[({{]\s?(?:[.。]|dot)\s?[\])}}]\s?)(?:(?:{_DOMAINS})|(?-i:{_MORE_DOMAINS}|{_MORE_DOMAINS.upper()}))\b"
    rf"|\b[a-z0-9-]{{2,63}}\s(?:\.|dot)\s(?:{_DOMAINS})\b"
    r"|\b[\w.+-]{1,64}@[\w-]+\.[a-z]{2,}|\b\d{1,3}(?:\.\d{1,3}){3}\b"
    r"|(?<![\w:])(?:(?:[0-9a-f]{1,4}:){5,7}[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){1,7}:(?:[0-9a-f]{1,4}:?){0,6})(?![\w:])|\[::[\w:]*\]",
    _FLAGS,
)
_KEY = re.compile(
    r"\bAIza[\w-]{20,}|\bya29\.[\w-]{20,}|\bsk-[\w-]{16,}|\bgh[oprsu]_\w{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{12,}|\bhf_\w{16,}|\bxox[abeprs]-[\w-]{10,}|\beyJ[\w-]{10,}\.[\w-]{10,}|-----BEGIN [A-Z ]*KEY"
    # Whatever its service: long, of letters and digits, without a space.
    r"|\b[rsp]k_(?:live|test)_\w{10,}|\b(?=[A-Za-z_]*\d)(?=[\d_]*[A-Za-z])\w{32,}"
)
_MARKUP = re.compile(r"</?[a-z][\w:-]*(?:\s[^<>]*)?/?>|<!--|<!\[|<<<|>>>|!?\[[^\]\n]{0,200}\]\([^)\n]{1,500}\)", _FLAGS)
_MACHINE_CALL = re.compile(
    r"[\"'](?:name|tool|tool_name|function|arguments|parameters|tool_calls?)[\"']\s*:"
    r"|\b(?:google_search|snippet_search|browse_webpage|call_tool|python|bash|exec|eval|os\.system|subprocess\.\w+)\s*\("
    r"|\b(?:curl|wget)\s+\S|\brm\s+-[rf]|\bsudo\s+\w|\bpip\s+install\b|\bcall_tool\b|```\s*(?:json|bash|sh|python|tool)",
    _FLAGS,
)
_FEW = r"(?:[\w'’-]+\W+){0,4}?"
_MARKS = r"(?:marks?|scores?|points?|grades?|ratings?|credits?|rewards?)"
_SCORE_REQUEST = re.compile(
    rf"\b(?:give|gives|award|assign|grant|deserves?|earns?|merits?|receives?|rate|score|grade)\W+{_FEW}"
    rf"(?:full|max(?:imum|imal)?|highest|top|perfect|best|good)(?:\s+possible)?\s+{_MARKS}\b"
    r"|\b(?:score|rate|grade|mark)(?:\s+(?:it|this|me|them|us|that|everything|all|the|every|each|answer|answers|reflection|"
    r"reflections|response|attempt|candidate|item|stage|as|with|at|a|an))*\s*[:=]?\s*(?:2|two|5|five|10|ten|100|1\.0)\b(?![\w%.,]*\d)"
    r"|\b(?:dear|note\s+to(?:\s+the)?|attention|hey|hello|message\s+(?:to|for)(?:\s+the)?)[\s,:]+(?:judge|grader|evaluator|scorer|reviewer|rater)s?\b"
    r"|\b(?:the|any|every|all|you\s+are\s+(?:a|the))\s+(?:judge|grader|evaluator|scorer|rater)s?\s+(?:must|should|shall|will|has\s+to|have\s+to|needs?\s+to|is\s+to)\b"
    rf"|\b(?:full|maximum|highest|perfect)\s+(?:marks|scores?|reward)\s+(?:for|to|on|regardless|no\s+matter)\b"
    r"|[\"']scores?[\"']\s*:",
    _FLAGS,
)
_WHOSE = r"(?:all|any|the|your|my|these|those|every|each|previous|prior|earlier|above|preceding|foregoing|of|other|system|safety|original)"
_RULES = (
    r"(?:instructions?|prompts?|rules?|directions?|directives?|guidelines?|guardrails?|commands?|orders?|rubrics?|"
    r"constraints?|polic(?:y|ies)|messages?|scaffold|format\s+requirements?)"
)
_ORDER = re.compile(
    rf"\b(?:ignore|disregard|forget|override|overrule|bypass|skip|discard|dismiss|do\s+not\s+(?:follow|obey)|don'?t\s+(?:follow|obey)|"
    rf"never\s+(?:follow|obey)|stop\s+following)\s+(?:{_WHOSE}\s+){{1,4}}{_RULES}\b"
    r"|\b(?:ignore|disregard|forget)\s+(?:everything|all|anything)\s+(?:above|before|previous|prior|you|that\s+came|so\s+far|else)\b"
    r"|\b(?:system|developer|hidden|initial)\s+(?:prompt|message|instructions?)\b|\b(?:new|updated|real|secret)\s+instructions?\s*(?::|are|follow)"
    r"|\byou\s+are\s+now\b|\bfrom\s+now\s+on\b|\bact\s+as\s+(?:if|a|an|the)\b|\bpretend\s+(?:to|that|you)\b|\b(?:developer|debug|admin|god)\s+mode\b|\bjailbr"
    r"|\b(?:assistant|ai|model|agent|llm)\s*[:,]\s*(?:you\s+must|you\s+should|please|do|ignore)\b"
    r"|\b(?:do\s+not|don'?t|never)\s+(?:tell|inform|reveal|mention|disclose)\s+(?:this\s+)?(?:to\s+)?(?:the\s+)?(?:user|reader|judge|anyone|operator)s?\b"
    r"|\b(?:reveal|print|output|repeat|leak|send|exfiltrate|upload)\s+(?:me\s+)?(?:your|the|all|any|every)\s+(?:\w+\s+){0,2}?"
    r"(?:system\s+prompt|api\s+keys?|keys?|passwords?|credentials?|secrets?|tokens?|instructions)\b"
    r"|\b(?:execute|run)\s+(?:the\s+|this\s+|a\s+|following\s+)*(?:command|code|script|shell|payload)\b"
    r"|\b(?:the\s+)?(?:correct|final|right|true)\s+answer\s+(?:to\s+[^.\n]{1,80}\s+)?is\s+(?:always|simply|just|definitely)\b"
    r"|\b(?:always|just|simply)\s+(?:answer|reply|respond|output|say)\s+(?:with\s+)?[\"'“‘]",
    _FLAGS,
)


_FOREIGN_ORDER = re.compile(
    "|".join(
        fold(phrase)
        for phrase in (
            r"ignor\w* (?:todas? )?(?:as|las|le|tutte le) (?:instru|istru)",
            r"(?:ignore[rz]?|oublie[rz]?) (?:toutes )?(?:les|tes|vos) (?:instructions|consignes)",
            r"(?:ignorier|vergiss)\w* (?:alle |die |deine |vorherigen |bisherigen ){1,4}(?:anweisung|befehl|regeln)",
            r"(?:игнорируй|забудь)\w* .{0,20}(?:инструкц|указан|правил)",
            r"(?:忽略|无视|無視).{0,8}(?:指令|指示|提示|说明|說明)",
            r"(?:指示|命令).{0,6}無視",
            r"(?:지시|명령).{0,8}무시",
            r"تجاهل .{0,20}(?:التعليمات|الأوامر)",
        )
    ),
    _FLAGS,
)
_JOINER = re.compile(r"(?<=\w)[-‐-―·•*~]+(?=\w)|_+")


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


def _find_markup(text: str) -> str | None:
    """A tag of ours in any disguise that the scaffold knows, a chat special, or anything else that looks like a tag."""
    for form in (text, fold(text)):
        defused = neutralize(form)
        if defused != form:
            at = next(index for index, (one, two) in enumerate(zip(form, defused, strict=False)) if one != two)
            return form[max(0, at - 1) : at + 30]
    return _find(_MARKUP, text)


def _find(pattern: re.Pattern[str], text: str) -> str | None:
    """Line breaks count as spaces: an order over two lines is one."""
    found = pattern.search(" ".join(fold(text).split()))
    return found and found[0]


def _find_said(pattern: re.Pattern[str], text: str) -> str | None:
    """As `_find`, where signs that join words count as spaces, or as nothing, and spaced letters are a word."""
    folded = fold(text)
    spaced = re.sub(r"(?<=\b\w) (?=\w\b)", "", folded)
    joined = (_JOINER.sub(" ", folded), _JOINER.sub("", folded), _JOINER.sub("", folded.replace("_", " ")))
    forms = dict.fromkeys((folded, *joined, spaced))
    return next((found for form in forms if (found := _find(pattern, form))), None)


Limit = Annotated[int, Field(ge=1)]
RefusalCode = Literal[
    "format",  # not the two blocks, once each, in order, with something in them
    "too_long",
    "address",
    "key",  # looks like an API key
    "markup",  # a tag of the scaffold, a chat special, or any other tag
    "order",  # addresses a model with instructions
    "tool_call",
    "score_request",  # addresses a judge
    "unseen",  # characters that a reader does not see
    "copied",
    "removed_before",
    "evaluation",  # the question is reserved for evaluation
    "score",  # below the score that the bank requires
]
"""Why a reflection did not enter the bank."""


class Refusal(NamedTuple):
    """A reflection that was not let in: a value, for the record and the counts."""

    code: RefusalCode
    sentence: str


class GateLimits(Frozen):
    """How long a reflection may be, and how good it must be; defaults hold what 2,048 tokens can say."""

    rubrics_chars: Limit = 6_000
    takeaways_chars: Limit = 4_000
    question_chars: Limit = 20_000
    min_score: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Utility below this is refused (choice C4); an unjudged reflection has none and passes."""


_TEXT_CHECKS: Sequence[tuple[RefusalCode, str, Callable[[str], str | None]]] = (
    ("unseen", "holds a character that nobody sees", _find_unseen),
    ("address", "holds an address", partial(_find, _ADDRESS)),
    ("key", "holds what looks like a key", partial(_find, _KEY)),
    ("markup", "holds markup", _find_markup),
    ("tool_call", "holds the syntax of a tool call", partial(_find, _MACHINE_CALL)),
    ("score_request", "speaks to a judge", partial(_find_said, _SCORE_REQUEST)),
    ("order", "gives an order to a model", partial(_find_said, _ORDER)),
    ("order", "gives an order to a model", partial(_find_said, _FOREIGN_ORDER)),
)


class WriteGate:
    """Decides by the text alone, so that the same reflection always meets the same answer."""

    def __init__(self, limits: GateLimits | None = None, *, evaluation_keys: Collection[str] = frozenset()) -> None:
        self.limits = limits or GateLimits()
        self._evaluation_keys = frozenset(evaluation_keys)

    def refuse(
        self, reflection: Reflection, *, pages: ShownText | None = None, removed: Collection[str] = frozenset()
    ) -> Refusal | None:
        """Why the reflection may not enter, or None where it may.

        `pages` is what tools have shown in the attempt; `removed` are the digests of removed texts.
        """
        return (
            self._refuse_frame(reflection)
            or _refuse_text(reflection)
            or _refuse_repetition(reflection, pages or ShownText(), removed)
        )

    def _refuse_frame(self, reflection: Reflection) -> Refusal | None:
        limits = self.limits
        if reflection.query_key in self._evaluation_keys:
            return Refusal("evaluation", "the question is reserved for evaluation; the bank may not learn it.")
        for part, text, limit in (
            ("rubrics", reflection.rubrics, limits.rubrics_chars),
            ("takeaways", reflection.takeaways, limits.takeaways_chars),
            ("question", reflection.question, limits.question_chars),
        ):
            if len(text) > limit:
                return Refusal("too_long", f"the {part} have {len(text):,} characters; at most {limit:,} may enter.")
        if reflection.score is not None and reflection.score.utility < limits.min_score:
            return Refusal("score", f"utility {reflection.score.utility:.3f} is below min_score {limits.min_score}.")
        return None


def _refuse_text(reflection: Reflection) -> Refusal | None:
    for part, text in (
        ("rubrics block", reflection.rubrics),
        ("takeaways block", reflection.takeaways),
        ("question", reflection.question),
    ):
        for code, fault, find in _TEXT_CHECKS:
            found = find(text)
            if found is not None:
                return Refusal(code, f"the {part} {fault}: {_shown(found)}.")
    return None


def _refuse_repetition(reflection: Reflection, pages: ShownText, removed: Collection[str]) -> Refusal | None:
    if text_digest(reflection) in removed:
        return Refusal("removed_before", "a person removed this text from the bank; it does not come back.")
    copied = pages.find_copy(f"{reflection.rubrics}\n{reflection.takeaways}")
    if copied is not None:
        return Refusal("copied", f"it repeats a page word for word: {_shown(copied)}.")
    return None


def _shown(found: str) -> str:
    """Evidence that is safe to print."""
    plain = found.encode("unicode_escape").decode("ascii") if not found.isprintable() else found
    return repr(plain if len(plain) <= 60 else plain[:57] + "...")
