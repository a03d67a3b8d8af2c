"""Key terms: stems of the content words of a text, the share of them that another text covers, and quotations."""

import re
from collections.abc import Collection, Iterable

from rubricem_env.judge.rules.tables import RULE_TABLES

_WORD = re.compile(r"[^\W_]+(?:[.,:/-][^\W_]+)*")
_TAG = re.compile(r"<[^<>]*>")
_SENTENCE = re.compile(r"[^.!?\n]+(?:\.\d[^.!?\n]*)*[.!?]?")
_SUFFIXES = ("ations", "ation", "ings", "ing", "ies", "ied", "ed", "es", "s")
_MIN_STEM = 4
QUOTE_CHARS = 160
_EMPTY_WORDS = frozenset(RULE_TABLES["empty_words"].split())


def plain_text(text: str) -> str:
    """The text without its tags."""
    return _TAG.sub(" ", text)


def key_terms(text: str) -> tuple[str, ...]:
    """Content words and figures as stems, each once, in order of first use."""
    return tuple(key_words(text))


def key_words(text: str) -> dict[str, str]:
    """The key terms, each with the word that it first came from."""
    words: dict[str, str] = {}
    for word in _WORD.findall(plain_text(text)):
        plain = word.casefold()
        if plain not in _EMPTY_WORDS and (len(plain) > 2 or any(char.isdigit() for char in plain)):
            words.setdefault(_stem(plain), word)
    return words


def cover(terms: Iterable[str], text: str) -> tuple[str, ...]:
    """The terms that the text contains, each once; a stem is found where a word has it."""
    there = set(key_terms(text))
    return tuple(dict.fromkeys(term for term in terms if term in there))


def covered_share(terms: Collection[str], text: str) -> float:
    """The share of the terms that the text contains; 1.0 where there are no terms."""
    return len(cover(terms, text)) / len(set(terms)) if terms else 1.0


def find_quote(text: str, terms: Iterable[str] = ()) -> str:
    """The first sentence with the most terms, in quotation marks and truncated."""
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(plain_text(text)) if sentence.strip()]
    if not sentences:
        return "nothing is written there"
    wanted = set(terms)
    best = max(sentences, key=lambda sentence: len(wanted & set(key_terms(sentence))))
    return f"“{best if len(best) <= QUOTE_CHARS else best[: QUOTE_CHARS - 1] + '…'}”"


def _stem(word: str) -> str:
    if any(char.isdigit() for char in word):
        return word
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _MIN_STEM:
            return word[: -len(suffix)]
    return word
