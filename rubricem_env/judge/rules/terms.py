"""Key terms of a text, and how much of them another text covers: all that the rules know of meaning."""

import re
from collections.abc import Iterable
from typing import NamedTuple

_WORD = re.compile(r"[^\W_]+(?:[.,:/-][^\W_]+)*")
_TAG = re.compile(r"<[^<>]*>")
_SENTENCE = re.compile(r"[^.!?\n]+(?:\.\d[^.!?\n]*)*[.!?]?")
_SUFFIXES = ("ations", "ation", "ings", "ing", "ies", "ied", "ed", "es", "s")
_MIN_STEM = 4
QUOTE_CHARS = 160

# Words that carry no content of a question or a criterion.
_EMPTY_TEXT = """
    about above after again against all also although always among and any are around asked because been before
    being below between both but can cannot could describe did does doing done during each either every explain
    few first for from further give given had has have having here how however include including into its itself
    just least less like made make makes many may might more most much must name names need needs neither never
    not now off once one only other others our ours over own per please report same several should show since
    some state still such than that the their them then there these they this those through thus too under until
    upon use used uses using very was were what when where whether which while who whom whose why will with
    within without would you your answer answers question evidence source sources rubric rubrics review plan
    agent states stated says said mention mentions provide provides provided discuss discusses identify identifies
    identified list lists note notes clearly accurately correctly relevant response
"""
_EMPTY_WORDS = frozenset(_EMPTY_TEXT.split())


class Coverage(NamedTuple):
    """Which of some terms a text holds."""

    found: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def share(self) -> float:
        """1.0 where nothing was asked for."""
        total = len(self.found) + len(self.missing)
        return len(self.found) / total if total else 1.0

    def mark(self, full: float, partial: float) -> int:
        """2, 1 or 0 by the shares at which the term is fully and partly covered."""
        return 2 if self.share >= full else int(self.share >= partial)


def plain_text(text: str) -> str:
    """The text without its tags."""
    return _TAG.sub(" ", text)


def key_terms(text: str) -> tuple[str, ...]:
    """Content words and figures as stems, each once, in order of first use."""
    return tuple(key_words(text))


def key_words(text: str) -> dict[str, str]:
    """The key terms with the word that each first stood in, for people to read."""
    words: dict[str, str] = {}
    for word in _WORD.findall(plain_text(text)):
        if _carries_content(word.casefold()):
            words.setdefault(_stem(word.casefold()), word)
    return words


def cover(terms: Iterable[str], text: str) -> Coverage:
    """Sort the terms into found and missing; a stem counts as found where a word has it."""
    there = set(key_terms(text))
    wanted = tuple(dict.fromkeys(terms))
    return Coverage(tuple(t for t in wanted if t in there), tuple(t for t in wanted if t not in there))


def find_quote(text: str, terms: Iterable[str] = ()) -> str:
    """The sentence that holds most of the terms, the first of equals, in quotation marks and cut to a length."""
    sentences = [found.strip() for found in _SENTENCE.findall(plain_text(text)) if found.strip()]
    if not sentences:
        return "nothing is written there"
    wanted = set(terms)
    best = max(sentences, key=lambda sentence: len(wanted & set(key_terms(sentence))))
    return f"“{best if len(best) <= QUOTE_CHARS else best[: QUOTE_CHARS - 1] + '…'}”"


def _carries_content(word: str) -> bool:
    return word not in _EMPTY_WORDS and (len(word) > 2 or any(char.isdigit() for char in word))


def _stem(word: str) -> str:
    if any(char.isdigit() for char in word):
        return word
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _MIN_STEM:
            return word[: -len(suffix)]
    return word
