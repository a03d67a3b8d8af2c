"""Finds text that was copied from a page, in any script and in disguise.

Texts are compared by their folded letters alone: compatibility forms, case, accents, lookalike letters, invisible
characters, spaces and punctuation do not count. So a hyphen between the letters hides a copy no more than a Cyrillic a.
A copy is `COPIED_WORDS` words in a row, or as much text of a script that is written without spaces.
"""

import html
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate

from rubricem_env.domain.base import Span
from rubricem_env.domain.trajectory import Origin, Trajectory
from rubricem_env.scaffold.folding import fold_letters, fold_words

COPIED_WORDS = 12
"""This many words in a row are a copy. Fewer may be a name or a common phrase."""

_WORD_COST = 60
"""What a word is worth in units; the other costs say how many characters make as much text as twelve words."""
_COSTS = (
    (re.compile("[\u2e80-\u2fff\u3005-\u3007\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"), 36),  # Han: 20
    (re.compile("[\u3040-\u30ff\u3105-\u312f\u31f0-\u31ff\ua000-\ua4cf]"), 27),  # kana, bopomofo, Yi: 27
    (re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\ua9e0-\uaadf]"), 15),  # Thai, Burmese, Khmer: 48
)
_UNSPACED = re.compile("|".join(pattern.pattern for pattern, _ in _COSTS))
_LONGEST_WORD = 20
_LONG_WORD_COST = 9
"""A letter of a longer word, such as of a text whose spaces were removed: 80 letters."""
_FEWEST_LETTERS = 20
"""A copy has at least this many letters, however short its words are."""


class ShownText:
    """What was shown, to be searched for in other texts."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        texts = set(texts)
        # Runs of letters in a set: a search in the texts would take a second for the rubrics of a group.
        self._runs = set().union(*map(_runs, texts))
        self._beginnings = {run[:_FEWEST_LETTERS] for run in self._runs}
        self._lengths = sorted(set(map(len, self._runs)), reverse=True)
        self._letters = "\n".join(map(fold_letters, sorted(texts)))

    @classmethod
    def in_trajectories(cls, trajectories: Iterable[Trajectory]) -> "ShownText":
        """All tool text of these attempts."""
        return cls(
            segment.text
            for trajectory in trajectories
            for segment in trajectory.segments
            if segment.origin is Origin.TOOL
        )

    def mentions(self, name: str) -> bool:
        """Whether the letters of the name stand anywhere in what was shown."""
        return fold_letters(name) in self._letters

    def find_copy(self, text: str) -> str | None:
        """The first passage of the text, its HTML entities resolved, that is a copy; None if there is none."""
        plain = html.unescape(text)
        copies = self.find_copies(plain)
        return copies[0].of(plain) if copies else None

    def find_copies(self, text: str) -> tuple[Span, ...]:
        """The spans of all copies; copies that overlap are one."""
        letters = fold_letters(text)
        copies: list[Span] = []
        for start, end in self._copied(letters):
            if copies and start < copies[-1].end:
                start, end = copies[-1].start, max(end, copies.pop().end)
            copies.append(Span(start, end))
        if not copies:
            return ()
        # Each letter's place in the text: one character may be several letters, or none.
        places = [at for at, char in enumerate(text) for _ in fold_letters(char)]
        return tuple(Span(places[start], places[end - 1] + 1) for start, end in copies)

    def _copied(self, letters: str) -> Iterator[Span]:
        """Every run of what was shown, in the letters."""
        for start in range(len(letters)):
            if letters[start : start + _FEWEST_LETTERS] in self._beginnings:
                ends = (start + length for length in self._lengths)
                end = next((end for end in ends if end <= len(letters) and letters[start:end] in self._runs), None)
                if end is not None:
                    yield Span(start, end)


def _runs(text: str) -> set[str]:
    """For each word, or character of a script without spaces, the letters of the shortest copy that begins there."""
    words = fold_words(text)
    letters = "".join(words)
    if max(map(len, words), default=0) <= _LONGEST_WORD and (letters.isascii() or not _UNSPACED.search(letters)):
        offsets = [0, *accumulate(map(len, words))]
        ends = offsets[COPIED_WORDS:]
    else:
        words, costs = _split(words)
        offsets = [0, *accumulate(map(len, words))]
        spent = [0, *accumulate(costs)]
        needed = COPIED_WORDS * _WORD_COST
        ends = [offsets[bisect_left(spent, before + needed)] for before in spent if before + needed <= spent[-1]]
    fewest = _FEWEST_LETTERS
    places = zip(offsets, ends, strict=False)
    runs = {letters[start : end if end - start >= fewest else start + fewest] for start, end in places}
    return {run for run in runs if len(run) >= fewest}


def _split(words: Iterable[str]) -> tuple[list[str], list[int]]:
    """Words of ordinary length whole, and others letter by letter; with what each is worth."""
    units: list[str] = []
    costs: list[int] = []
    for word in words:
        if len(word) <= _LONGEST_WORD and (word.isascii() or not _UNSPACED.search(word)):
            units.append(word)
            costs.append(_WORD_COST)
        else:
            units += word
            costs += map(_cost, word)
    return units, costs


@cache
def _cost(char: str) -> int:
    return next((cost for kind, cost in _COSTS if kind.match(char)), _LONG_WORD_COST)
