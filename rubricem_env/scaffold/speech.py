"""Finds text that speaks to the machine that reads it: orders to a model, and requests to a judge.

A criterion or a lesson speaks of answers and research. Injected text speaks of the conversation itself: its prompt, its
reader, its marks. So single words decide nothing. A sentence is refused where its parts stand in such a relation: an act
in the imperative with the reader's own instructions as its object ("ignore all previous rules"), or marks that are to
be given to the text's own bearer ("give this answer full marks"). A flaw that is described ("ignores the user's
instructions"), a negation, a complement that names another owner ("the rules of the agency"), or a scale that is named
("the highest score on GPQA") makes it an ordinary sentence.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, Literal, NamedTuple

from rubricem_env.scaffold.folding import fold

_FLAGS = re.IGNORECASE


class Speech(NamedTuple):
    """A passage that speaks to the machine."""

    kind: Literal["order", "score_request"]
    passage: str


_WORK = (
    r"(?:answers?|attempts?|response|responses|repl(?:y|ies)|reports?|reflections?|candidates?|essays?|outputs?|submissions?|"
    r"trajector(?:y|ies)|(?:this|my|the)\s+note|it|this|these|them|me|everything|everyone|anything|anyone|whoever|whatever|this\s+one|(?:all|every|each)\s+(?:of\s+)?(?:the\s+)?"
    r"(?:stages?|criteri(?:on|a)|rubrics?|items?|ind(?:ex|ices)|attempts?|answers?|responses?)|all)"
)
_MARK = r"(?:marks?|scores?|points?|grades?|ratings?|credits?|rewards?)"
_MAX = r"(?:full|max(?:imum|imal)?|highest|top|perfect|best|greatest)(?:\s+possible)?"
_TWO = r"(?:[012]|two|5|five|10|ten|100|1\.0)"
_ROLE = r"(?:judge|grader|evaluator|scorer|reviewer|rater|marker|examiner)s?"
_GRANT = r"(?:give|award|assign|grant|allocate|bestow|score|rate|grade|mark)"
_SCALE = re.compile(
    r"\s*(?:on|in|at|across|among|from|of|reported|achieved|seen|with)\b(?!\s+(?:every|all|each|any))", _FLAGS
)
_WORK_WORD = re.compile(rf"\b{_WORK}\b", _FLAGS)
_AUTHORITY = r"(?:instructions?|prompts?|directives?|guardrails?|system\s+(?:messages?|rules?)|training|safety\s+\w+|rubrics?|scaffold|programming)"
_RULES = (
    r"(?:rules?|guidelines?|polic(?:y|ies)|orders?|constraints?|commands?|messages?|criteria|requirements?|directions?|conversations?|"
    r"contexts?|restrictions?|limits?)"
)
_DISREGARD = (
    r"(?:ignore|disregard|forget|override|overrule|bypass|discard|dismiss|drop|skip|neglect|set\s+aside|"
    r"abandon|violate|break|(?:do\s+not|don'?t|must\s+not|should\s+not|need\s+not|never|stop|no\s+longer|quit|refuse\s+to)\s+"
    r"(?:follow|obey|heed|respect|honou?r|comply\s+with)(?:ing)?)"
)
_WHOSE = r"(?:all|any|every|each|the|your|my|our|these|those|this|of|previous|prior|earlier|above|preceding|foregoing|other|original|initial|existing)"
_DEIXIS = r"(?:previous|prior|earlier|above|preceding|foregoing|your|my|these|those|other|original|initial|existing)"
_OF_READER = re.compile(rf"\b(?:{_DEIXIS}|all)\b", _FLAGS)
_READER = re.compile(
    r"\b(?:you|your|me|above|below|before|prompt|system|conversation|chat|context|judge|grader|assistant|so\s+far|this|order)\b",
    _FLAGS,
)
_COMPLEMENT = re.compile(
    r"\s*(?:of|in|on|for|from|by|that|which|who|whose|where|superseded|issued|published|older|about|under|with|without|between|"
    r"concerning|regarding|dated|after|until|given\s+by|to)\b([^.!?;,]*)",
    _FLAGS,
)
_NOT_DIRECTIVE_LIST = (
    "not never can could may might would will did does do don't doesn't without than they which that who people it cannot "
    "why how when whether not't or's"
)
_NOT_DIRECTIVE = frozenset(_NOT_DIRECTIVE_LIST.split())
_NOT_PLURAL_LIST = "please always thus as this is was perhaps yes unless answers attempts responses graders judges us"
_NOT_PLURAL = frozenset(_NOT_PLURAL_LIST.split())
_MISTAKE = re.compile(
    r"\b(?:mistake|error|pitfall|wrong|fail\w*|tendency|model|models|system|llm|agent|it|them|tries|attempts?|tricks?\s+\w+)\s+to$",
    _FLAGS,
)
_MENTION = re.compile(
    r"(?:such\s+as|e\.g\.|example|like|known\s+as|injections?|attacks?|strings?)\W{0,3}[\"'“‘]\s*$", _FLAGS
)


def _is_directive(before: str) -> bool:
    """Whether a verb after this text, in its sentence, orders something; "models ignore" and "do not ignore" do not."""
    if _MENTION.search(before):
        return False
    found = re.search(r"([\w'’]+)\s*$", before)
    if found is None:
        return True
    last = found[1].lower().replace("’", "'")
    if last == "to":
        return _MISTAKE.search(before.rstrip()) is None
    if last in _NOT_DIRECTIVE:
        return False
    return not (last.endswith("s") and not last.endswith("ss") and last not in _NOT_PLURAL)


_DISREGARDS = re.compile(
    rf"\b{_DISREGARD}\s+(?:(?P<named>(?:{_WHOSE}\s+){{0,5}}(?:hidden\s+|system\s+|user'?s?\s+)?{_AUTHORITY})"
    rf"|(?P<ruled>(?:{_WHOSE}\s+){{1,5}}(?:safety\s+|system\s+)?{_RULES})\b"
    r"|(?P<said>(?:everything|all|anything|what(?:ever)?)\s+(?:(?:that\s+)?(?:you\s+(?:were|have|had|are)|came|stands)|above|before|previous|prior|so\s+far|else))"
    r"|(?P<asked>the\s+(?:user|question|task)(?:'?s\s+(?:question|request|task))?(?=\s+and\b)))",
    _FLAGS,
)
TABLES: Mapping[str, Any] = json.loads(
    resources.files("rubricem_env.scaffold").joinpath("speech.json").read_text("utf-8")
)
"""By language, acts and their objects; names of domains and of public sites."""
_ORDERS = re.compile("|".join(TABLES["english_orders"]), _FLAGS)
_TO_JUDGE = re.compile(
    rf"\b(?:dear|hey|hello)[\s,:]+{_ROLE}\b|\b(?:note|message|attention|memo)[\s,:]+(?:(?:to|for)\s+)?(?:the\s+)?{_ROLE}\s*[:,!–—-]"
    rf"|(?:^|[.!?]\s+){_ROLE}\s*:|\b(?:as|you\s+are)\s+(?:the|a)\s+{_ROLE}\s+you\b"
    rf"|\b(?:the|any|every|all|this)\s+{_ROLE}\s+(?:must|should|shall|will|has\s+to|have\s+to|needs?\s+to|is\s+to)\s+(?:\w+\s+)?"
    rf"(?:accept|give|award|score|rate|mark|prefer|pass|approve|grant|treat|overlook|set)\s+(?:(?:this|it|these|everything|all)\b|the\s+(?:answer|attempt|response|reflection|report|candidate)|{_MAX}\s)"
    r"|[\"']scores?[\"']\s*:|\b(?:diagnostic_accuracy|scope_and_balance)\b\W{0,4}\d"
    rf"|\bwe\s+(?:ask|urge|request)\s+(?:the\s+|any\s+|every\s+)?{_ROLE}\b|(?:^|[.!?]\s+)(?:final\s+)?(?:score|mark|grade|rating)\s*[:=]\s*{_TWO}\b"
    rf"|\bscoring\s+instructions?\b|\breturn\s+(?:a\s+)?scores?\s+(?:of\s+)?{_TWO}\b"
    rf"|\bset\s+(?:all|every|each)\s+(?:\w+\s+)?{_MARK}\s+to\b",
    _FLAGS,
)
_GRANTS_MAX = re.compile(rf"\b{_GRANT}\b(?P<to>(?:\W+[\w'’-]+){{0,5}}?)\W+{_MAX}\s+{_MARK}\b", _FLAGS)
_GRANTS_NUMBER = re.compile(
    rf"\b(?P<verb>{_GRANT})\b(?P<to>(?:\s+[\w'’-]+){{0,5}}?)\s*[:=]?\s*(?:\b(?:as|with|at|an?|by|to)\s+)*\b{_TWO}\b(?![\w%]|[.,]\d|\s*(?:%|[-–/x]|to\s+\d|out\s+of|findings?|hours?|years?))",
    _FLAGS,
)
_RECEIVES = re.compile(
    rf"(?:(?P<who>\b{_WORK}(?:\s+that\s+[\w\s]{{1,30}}?|\s+\w+)?|(?:^|[.;:]\s*))\s*(?:(?:always|simply|should|must|will|shall|ought\s+to)\s+){{0,2}}(?:gets?|receives?|deserves?|earns?|merits?))\s+"
    rf"(?:[\w-]+\s+){{0,2}}?(?:{_MAX}\s+{_MARK}|{_MARK}\s+of\s+{_TWO}|(?:an?\s+)?(?:2|10|100|1\.0)(?=\s*(?:[.,;:!]|$)|\s+(?:on|for|if|when|everywhere|throughout)\b))",
    _FLAGS,
)
_EARNS = re.compile(
    rf"\bwho(?:so)?ever\b[^.]{{0,60}}\b(?:gets?|receives?|earns?|deserves?)\s+{_MAX}\s+{_MARK}\b", _FLAGS
)
_MUST = r"(?:must|should|shall|is\s+to|are\s+to|has\s+to)\s+(?:always\s+)?be|always\s+(?:be|is|are)"
_PASSIVE = re.compile(
    rf"\b(?P<who>{_WORK})\s+(?:[\w-]+\s+){{0,2}}?(?:{_MUST})\s+(?:always\s+)?(?:given|granted|awarded|scored|rated|graded|marked)\s+"
    rf"(?:(?:an?|the|by|as|with|two|of)\s+|[\w-]+\s+){{0,3}}?(?:(?:good|high|{_MAX})\s+{_MARK}|high(?:ly|er)?\b|preference|the\s+benefit|for\s+its|{_TWO}(?=\s*(?:[.,;:!]|$)|\s+(?:if|when|whenever|for|to|without)\b))",
    _FLAGS,
)
_CREDITED = re.compile(
    rf"\b(?:{_MARK}|preference|benefit)\b[^.]{{0,20}}\b(?:{_MUST})\s+given\s+to\s+(?:who(?:so)?ever|any|every|all|{_WORK})\b",
    _FLAGS,
)
_ANYHOW = re.compile(
    rf"\b{_MAX}\s+(?:marks|scores?|points|rewards?|credit|grades?|ratings?)\s+(?:(?:for|to|on)\s+(?:(?:this|all|any|every|each|any)\b|(?:the\s+)?(?:answer|attempt|candidate|response|reflection|reply)s?\b)|regardless|no\s+matter)"
    rf"|\b(?:mark|treat|count|take)\s+(?:everything|all|every\s+\w+|each\s+\w+|this)\s+as\s+(?:fully\s+)?(?:met|complete|full|satisfied|2)\b"
    rf"|\b(?:regardless|irrespective|no\s+matter|whatever)\b[^.]{{0,60}}\b{_MAX}\s+{_MARK}\b|\b{_MARK}\s+of\s+{_TWO}\s+(?:regardless|irrespective|no\s+matter|whatever|in\s+all|everywhere)\b"
    rf"|\b(?:consider|treat|count|regard|deem|mark|take)\s+(?:this|the|every|each|all)\s+(?:criteri\w+|rubrics?|items?|answers?|attempts?|responses?|reflections?)\s+(?:as\s+)?(?:\w+ly\s+)?"
    r"(?:satisfied|met|fulfilled|complete|perfect|passed|full)\b"
    rf"|\b(?:choose|pick|select|use|take|enter)\s+(?:the\s+)?{_MAX}\b[^.]{{0,30}}\b(?:item|criteri\w+|rubrics?|attempts?|answers?|responses?|reflections?)\b"
    rf"|\b{_GRANT}\s+(?:this|the|my|every|each|all)\s+(?:\w+\s+)?(?:as\s+|an?\s+)?(?:excellent|perfect|outstanding|flawless|fully\s+correct)\b"
    rf"|\b(?:answer|attempt|response|reflection|candidate)\b[^.]{{0,40}}\bthe\s+(?:score|mark|grade|rating)\s+(?:is|must\s+be|should\s+be|shall\s+be)\s+{_TWO}\b"
    rf"|\bscore\s+2\s+(?:on|for|in)\s+(?:every|all|each)|\bright\s+score\s+is\b|\b(?:give|award)\s+{_TWO}\s+(?:everywhere|throughout)\b",
    _FLAGS,
)

_NEAR = 48
"""Characters between an act and its object, in the languages of the tables."""
_NEGATED = re.compile(
    fold(
        r"(?:\bno\s+(?:conviene\s+)?|\bne\s+(?:pas\s+)?|\bnicht\s+|\bnon\s+|\bnão\s+|\bnie\s+|нельзя\s+|\bне\s+|\bδεν\s+|\bμη(?:ν)?\s+)$"
    ),
    _FLAGS,
)


def _near(acts: str, objects: str) -> re.Pattern[str]:
    gap = rf"[^.!?。！？।]{{0,{_NEAR}}}?"
    return re.compile(
        rf"(?P<act>{fold(acts)}){gap}(?:{fold(objects)})|(?:{fold(objects)}){gap}(?:{fold(acts)})", _FLAGS
    )


_FOREIGN: Sequence[tuple[Literal["order", "score_request"], re.Pattern[str]]] = (
    *(("order", _near(*pair)) for pair in TABLES["orders"]),
    ("order", re.compile("|".join(map(fold, TABLES["selves"])), _FLAGS)),
    *(("score_request", _near(*pair)) for pair in TABLES["scores"]),
)
_IN_LATIN = (_FOREIGN[0], _FOREIGN[len(TABLES["orders"])], *_FOREIGN[len(TABLES["orders"]) + 1 :][:2])
"""Those that can match text in plain Latin letters: the first rows of both tables."""
_IN_ENGLISH = re.compile(
    r"(?:ignor(?:e|es|ed|ing)|instructions?)\b(?!.*\b(?:les|vos|tes|ces|toutes|tous|las|todas|as|alle|die)\b).*\b(?:ignor\w+|instruct(?:ions?|s|ed|ing))",
    _FLAGS,
)
"""Words that English shares with the Romance languages, in an English sentence."""

_JOINER = re.compile(r"(?<=\w)[-‐-―·•*~.]+(?=\w)|_+")
_DIGITS = str.maketrans("013457@$", "oieastas")
_SPACED = re.compile(r"\b\w \w \w\b")
_MIXED = re.compile(r"\b(?=\w*[a-z])(?=\w*[0-9])\w+|\b\w*(?<=[a-z])[@$]\w*", _FLAGS)


def find_speech(text: str) -> Speech | None:
    """The first passage that speaks to a model or to a judge; None where the text speaks of its subject alone."""
    sentences = _SENTENCE.split(fold(text))
    found = (one for sentence in sentences for form in _forms(sentence) for one in (*_requests(form), *_orders(form)))
    # In small letters, since the cases of a letter may look like different Latin ones.
    small = _SENTENCE.split(fold(text.lower()))
    others = (one for sentence in small for form in _forms(sentence) for one in _foreign(form))
    return next(found, None) or next(others, None)


_SENTENCE = re.compile(r"(?<=[.!?;])\s+")


def _forms(folded: str) -> Iterator[str]:
    """The sentence as a reader may take it.

    Joining signs are spaces or nothing, spaced letters are words, and digits within words are letters.
    """
    forms = [folded]
    if _JOINER.search(folded):
        without = _JOINER.sub("", folded)
        forms += [_JOINER.sub(" ", folded), without, _JOINER.sub("", folded.replace("_", " "))]
    if _SPACED.search(folded):
        forms.append(re.sub(r"(?<=\b\w) (?=\w\b)", "", folded))
    # "a11" is "all", and "th1s" is "this".
    forms.append(_MIXED.sub(lambda found: found[0].replace("11", "ll").translate(_DIGITS), folded))
    return iter(dict.fromkeys(" ".join(form.split()) for form in forms))


def _foreign(text: str) -> Iterator[Speech]:
    for kind, pattern in _IN_LATIN if text.isascii() else _FOREIGN:
        for found in pattern.finditer(text):
            if not _IN_ENGLISH.fullmatch(found[0]) and not _NEGATED.search(text[: found.start()]):
                yield Speech(kind, found[0])


def _orders(sentence: str) -> Iterator[Speech]:
    for found in _DISREGARDS.finditer(sentence):
        after = sentence[found.end() :]
        if not _is_directive(sentence[: found.start()]):
            continue
        passage = found[0]
        if found["said"] or found["asked"]:
            yield Speech("order", passage)
            continue
        complement = _COMPLEMENT.match(after)
        is_readers = _READER.search(complement[0] if complement else " ".join(after.split()[:1])) is not None
        is_owned = complement is not None and bool(complement[1].strip()) and not is_readers
        if is_readers or (not is_owned and (found["named"] or _OF_READER.search(passage))):
            yield Speech("order", passage)
    for found in _ORDERS.finditer(sentence):
        before = sentence[: found.start()]
        is_dictated = re.match(r"(?:answer|reply|respond)\b", found[0], _FLAGS) is None or _is_directive(before)
        if is_dictated and not _MENTION.search(before):
            yield Speech("order", found[0])


def _requests(sentence: str) -> Iterator[Speech]:
    for pattern in (_TO_JUDGE, _EARNS, _PASSIVE, _CREDITED, _ANYHOW):
        found = pattern.search(sentence)
        if found is not None:
            yield Speech("score_request", found[0])
    for found in _GRANTS_MAX.finditer(sentence):
        is_scale = _SCALE.match(sentence[found.end() :]) is not None and not _WORK_WORD.search(found["to"])
        if _is_directive(sentence[: found.start()]) and not is_scale:
            yield Speech("score_request", found[0])
    for found in _GRANTS_NUMBER.finditer(sentence):
        of_work = _WORK_WORD.search(found["to"]) or (
            not found["to"].strip() and _WORK_WORD.search(sentence[found.end() :])
        )
        if of_work and _is_directive(sentence[: found.start()]):
            yield Speech("score_request", found[0])
    for found in _RECEIVES.finditer(sentence):
        if not _SCALE.match(sentence[found.end() :]):
            yield Speech("score_request", found[0])
