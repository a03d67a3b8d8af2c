"""Finds text that speaks to the machine that reads it: orders to a model, and requests to a judge.

A criterion or a lesson speaks of answers and research. Injected text speaks of the conversation itself: its prompt, its
reader, its marks. So single words decide nothing. A sentence is refused where its parts stand in such a relation: an
act in the imperative with the reader's own instructions as its object ("ignore all previous rules"), or marks that are
to be given to the text's own bearer ("give this answer full marks"). A flaw that is described ("ignores the user's
instructions"), a negation, a complement that names another owner ("the rules of the agency"), or a scale that is named
("the highest score on GPQA") makes it an ordinary sentence.

Criteria and lessons are written for a question, so they are in its language or in English. A page in another language
that got its words into one shows by that alone, whatever they say.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rubricem_env.domain.inputs import package_text
from rubricem_env.scaffold.folding import fold

_FLAGS = re.IGNORECASE
TABLES: Mapping[str, Any] = json.loads(package_text("rubricem_env.scaffold", "speech.json"))
"""Acts and their objects, and function words, by language. Names of domains and of public sites."""
_PARTS: Mapping[str, str] = TABLES["parts"]
SpeechKind = Literal["order", "score_request"]


class Speech(NamedTuple):
    """A passage that speaks to its reader."""

    kind: SpeechKind
    passage: str


"""A passage that speaks to the machine, after its kind."""
_SCALE = re.compile(
    r"\s*(?:on|in|at|across|among|from|of|reported|achieved|seen|with)\b(?!\s+(?:every|all|each|any))", _FLAGS
)
_WORK_WORD = re.compile(rf"\b{_PARTS['_WORK']}\b", _FLAGS)
_OF_READER = re.compile(rf"\b(?:{_PARTS['_DEIXIS']}|all)\b", _FLAGS)
_READER = re.compile(
    r"\b(?:you|your|me|above|below|before|prompt|system|conversation|chat|context|judge|grader|assistant|so\s+far|this"
    r"|order)\b",
    _FLAGS,
)
_COMPLEMENT = re.compile(
    r"\s*(?:of|in|on|for|from|by|that|which|who|whose|where|superseded|issued|published|older|about|under|with|without"
    r"|between|"
    r"concerning|regarding|dated|after|until|given\s+by|to)\b(?P<owner>[^.!?;,]*)",
    _FLAGS,
)
_NOT_DIRECTIVE = frozenset(_PARTS["not_directive"].split())
_NOT_PLURAL = frozenset(_PARTS["not_plural"].split())
_MISTAKE = re.compile(
    r"\b(?:mistake|error|pitfall|wrong|fail\w*|tendency|model|models|system|llm|agent|it|them|tries|attempts?"
    r"|tricks?\s+\w+)\s+to$",
    _FLAGS,
)
_MENTION = re.compile(
    r"(?:such\s+as|e\.g\.|example|like|known\s+as|injections?|attacks?|strings?)\W{0,3}[\"'“‘]\s*$", _FLAGS
)


_LONG_WORD = re.compile(r"(\w{64})\w+")
"""No language has so long a word. Its rest is left out, since patterns take quadratic time within one word."""
_WINDOW = 1_000
"""Characters of a sentence before or after a passage that decide about it. The limit keeps the time linear."""


def _before(text: str, match: re.Match[str]) -> str:
    return text[max(0, match.start() - _WINDOW) : match.start()]


def _after(text: str, match: re.Match[str]) -> str:
    return text[match.end() : match.end() + _WINDOW]


def _is_directive(before: str) -> bool:
    """Whether a verb after this text, in its sentence, orders something; "models ignore" and "do not ignore" do not."""
    if _MENTION.search(before):
        return False
    last_word = re.split(r"[^\w'’]+", before.rstrip())[-1]
    if not last_word:
        return True
    last = last_word.lower().replace("’", "'")
    if last == "to":
        return _MISTAKE.search(before.rstrip()) is None
    if last in _NOT_DIRECTIVE:
        return False
    return not (last.endswith("s") and not last.endswith("ss") and last not in _NOT_PLURAL)


_RELATIONS = {
    name: re.compile(re.sub(r"\{(_[A-Z]+)\}", lambda part: str(_PARTS[part[1]]), pattern), _FLAGS)
    for name, pattern in TABLES["relations"].items()
}
"""By name, how a sentence relates an act to its reader or to its bearer.

The parts that a pattern names are filled in.
"""
_ORDERS = re.compile("|".join(TABLES["english_orders"]), _FLAGS)
_TO_READER = re.compile(r"\b(?:you|your|yours|yourself|yourselves)\b", _FLAGS)

_READ_SCRIPTS = frozenset(TABLES["read_scripts"].split())
"""Scripts in which orders and requests are known."""
_NAME_LETTERS = 12
"""This many letters of a script that cannot be read may be a name."""
_WORD = re.compile(r"[^\W\d_]+")
_FUNCTION_WORDS = {language: frozenset(words.split()) for language, words in TABLES["function_words"].items()}
_QUOTED = re.compile('["“„«][^"“”„«»]+["”“»]')

_NEAR = 48
"""Characters between an act and its object, in the languages of the tables."""
_NEGATED = re.compile(
    fold(
        r"(?:\bno\s+(?:conviene\s+)?|\bne\s+(?:pas\s+)?|\bnicht\s+|\bnon\s+|\bnão\s+|\bnie\s+|нельзя\s+|\bне\s+"
        r"|\bδεν\s+|\bμη(?:ν)?\s+)$"
    ),
    _FLAGS,
)


def _near(acts: str, objects: str) -> re.Pattern[str]:
    gap = rf"[^.!?。！？।]{{0,{_NEAR}}}?"
    return re.compile(
        rf"(?P<act>{fold(acts)}){gap}(?:{fold(objects)})|(?:{fold(objects)}){gap}(?:{fold(acts)})", _FLAGS
    )


_FOREIGN: Sequence[tuple[SpeechKind, re.Pattern[str]]] = (
    *(("order", _near(*pair)) for pair in TABLES["orders"]),
    ("order", re.compile("|".join(map(fold, TABLES["selves"])), _FLAGS)),
    *(("score_request", _near(*pair)) for pair in TABLES["scores"]),
)
_IN_LATIN = (_FOREIGN[0], _FOREIGN[len(TABLES["orders"])], *_FOREIGN[len(TABLES["orders"]) + 1 :][:2])
"""Those that can match text in plain Latin letters: the first rows of both tables."""
_IN_ENGLISH = re.compile(
    r"(?:ignor(?:e|es|ed|ing)|instructions?)\b(?!.*\b(?:les|vos|tes|ces|toutes|tous|las|todas|as|alle"
    r"|die)\b).*\b(?:ignor\w+|instruct(?:ions?|s|ed|ing))",
    _FLAGS,
)
"""Words that English shares with the Romance languages, in an English sentence."""

_JOINER = re.compile(r"(?<=\w)[-‐-―·•*~.]+(?=\w)|_+")
_DIGITS = str.maketrans("013457@$", "oieastas")
_SPACED = re.compile(r"\b\w \w \w\b")
_MIXED = re.compile(r"\b(?=\w*[a-z])(?=\w*[0-9])\w+|\b\w*(?<=[a-z])[@$]\w*", _FLAGS)


def find_speech(text: str) -> Speech | None:
    """The first passage that speaks to a model or to a judge; None where the text speaks of its subject alone."""
    sentences = _SENTENCE.split(_shortened(fold(text)))
    english = (
        speech for sentence in sentences for form in _forms(sentence) for speech in (*_requests(form), *_orders(form))
    )
    # In small letters, since the cases of a letter may look like different Latin ones.
    small = _SENTENCE.split(_shortened(fold(text.lower())))
    others = (speech for sentence in small for form in _forms(sentence) for speech in _foreign(form))
    return next(english, None) or next(others, None)


def find_misplaced(text: str, *, is_criterion: bool) -> Speech | None:
    """Where the text speaks of itself or its evaluation, leaves the task, or is a criterion that addresses its reader.

    A criterion describes attempts, and a lesson research: neither has a reason to. Quotations do not count.
    """
    said = _shortened(_QUOTED.sub(" ", fold(text)))
    for pattern in (_RELATIONS["of_itself"], _RELATIONS["evaluates_here"], *((_TO_READER,) if is_criterion else ())):
        if match := pattern.search(said):
            return Speech("order", match[0])
    matches = (match for match in _RELATIONS["leaves_task"].finditer(said) if _is_directive(_before(said, match)))
    return next((Speech("order", match[0]) for match in matches), None)


def find_foreign(text: str, question: str) -> str | None:
    """The passage that is in another language than English and the question; None where that cannot be told.

    A language is known by its script, or by its function words: at least two of them, and more than there are English
    ones. Languages in Latin letters other than English count as one. Titles may be quoted.
    """
    own = {_script(char) for char in question if char.isalpha()} | {"LATIN"}
    letters = [char for char in text if char.isalpha()]
    foreign = [char for char in letters if _script(char) not in own]
    unread = [char for char in foreign if _script(char) not in _READ_SCRIPTS]
    if len(unread) > _NAME_LETTERS:
        return "".join(unread)
    if not question:
        return None
    if 2 * len(foreign) > len(letters):
        return "".join(foreign)
    english, other = _count(text)
    english_asked, other_asked = _count(question)
    is_asked_in_english = other_asked < english_asked or other_asked == 0
    return text if is_asked_in_english and other > max(english, 1) else None


_SENTENCE = re.compile(r"(?<=[.!?;])\s+")


def _shortened(text: str) -> str:
    """The text without the rests of words that are too long."""
    return _LONG_WORD.sub(r"\1", text)


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
    forms.append(_MIXED.sub(lambda match: match[0].replace("11", "ll").translate(_DIGITS), folded))
    return iter(dict.fromkeys(" ".join(form.split()) for form in forms))


def _foreign(text: str) -> Iterator[Speech]:
    for kind, pattern in _IN_LATIN if text.isascii() else _FOREIGN:
        for match in pattern.finditer(text):
            if not _IN_ENGLISH.fullmatch(match[0]) and not _NEGATED.search(_before(text, match)):
                yield Speech(kind, match[0])


def _orders(sentence: str) -> Iterator[Speech]:
    for match in _RELATIONS["disregards"].finditer(sentence):
        after = _after(sentence, match)
        if not _is_directive(_before(sentence, match)):
            continue
        complement = _COMPLEMENT.match(after)
        is_readers = _READER.search(complement["owner"] if complement else " ".join(after.split()[:1])) is not None
        is_owned = complement is not None and bool(complement["owner"].strip())
        is_of_reader = match["named"] or _OF_READER.search(match[0])
        if match["said"] or match["asked"] or is_readers or (is_of_reader and not is_owned):
            yield Speech("order", match[0])
    for match in _ORDERS.finditer(sentence):
        before = _before(sentence, match)
        is_dictated = re.match(r"(?:answer|reply|respond)\b", match[0], _FLAGS) is None or _is_directive(before)
        if is_dictated and not _MENTION.search(before):
            yield Speech("order", match[0])


def _requests(sentence: str) -> Iterator[Speech]:
    for relation in ("to_judge", "earns", "passive", "credited", "anyhow"):
        match = _RELATIONS[relation].search(sentence)
        if match is not None:
            yield Speech("score_request", match[0])
    for match in _RELATIONS["grants_max"].finditer(sentence):
        is_scale = _SCALE.match(_after(sentence, match)) is not None and not _WORK_WORD.search(match["to"])
        if _is_directive(_before(sentence, match)) and not is_scale:
            yield Speech("score_request", match[0])
    for match in _RELATIONS["grants_number"].finditer(sentence):
        of_work = _WORK_WORD.search(match["to"]) or (
            not match["to"].strip() and _WORK_WORD.search(_after(sentence, match))
        )
        if of_work and _is_directive(_before(sentence, match)):
            yield Speech("score_request", match[0])
    for match in _RELATIONS["receives"].finditer(sentence):
        if not _SCALE.match(_after(sentence, match)):
            yield Speech("score_request", match[0])


def _count(text: str) -> tuple[int, int]:
    """How many words of English there are, and of the other language that has most."""
    words = [word.lower() for word in _WORD.findall(fold(_QUOTED.sub(" ", text)))]
    counts = {language: sum(word in own for word in words) for language, own in _FUNCTION_WORDS.items()}
    return counts.pop("en"), max(counts.values())


def _script(char: str) -> str:
    return unicodedata.name(unicodedata.normalize("NFKC", char)[:1] or char, "?").partition(" ")[0]
