"""Guesses of the next tokens of a conversation, which a pass of the model checks (speculative decoding by n-grams)."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

DRAFT_ORDERS = (8, 4, 2)
"""How many tokens before a guess must be the same, the most telling first."""
DRAFT_ENTRIES = 200_000
"""Remembered at most twice: about 60 MB."""
DRAFT_WINDOW = 1_024
"""How many guesses are counted before the older ones count half."""
DRAFT_PRIOR = 32
"""How many guesses are taken to have been right before the first was made."""


class Drafts:
    """Guesses of the next tokens: what followed the same few tokens last time, in this or another conversation.

    What a pass of the model draws does not depend on the guesses that it checks: a token is drawn from the same
    distribution with the same random number, and the guesses after one that was not drawn are dropped.
    """

    def __init__(self, size: int) -> None:
        """Each guess has `size` tokens."""
        self.size = size
        self.forget()

    def forget(self) -> None:
        """Forget everything, so that what is guessed next depends on what is learnt next alone."""
        self._recent: dict[tuple[int, ...], int] = {}
        self._older: dict[tuple[int, ...], int] = {}
        self._watched: dict[int, tuple[int, list[int]]] = {}
        """By row, what was guessed and from which position on."""
        self._guesses = float(DRAFT_PRIOR)
        self._right = [self._guesses] * self.size
        """How many guesses had their first token right, their first two, and so on."""

    def learn(self, ids: Sequence[int], start: int) -> None:
        """Remember what ids[start:] followed."""
        for end in range(start, len(ids)):
            for order in DRAFT_ORDERS:
                self._recent[tuple(ids[max(0, end - order) : end])] = ids[end]
        if len(self._recent) > DRAFT_ENTRIES:
            self._older = self._recent
            self._recent = {}

    def watch(self, row: int, ids: Sequence[int], guess: list[int]) -> None:
        """Compare an earlier guess for a row with what has followed; watch this one as soon as that is decided.

        A guess is watched whether a pass checks it or not.
        """
        start, earlier = self._watched.get(row, (len(ids), []))
        right = common_prefix(earlier, ids[start:])
        if right < len(earlier) and start + right == len(ids):
            return
        # Where the row has another conversation now, nothing has followed.
        if start < len(ids):
            self._count(right)
        self._watched[row] = len(ids), guess

    def _count(self, right: int) -> None:
        self._guesses += 1
        for place in range(right):
            self._right[place] += 1
        if self._guesses > DRAFT_WINDOW:
            self._guesses /= 2
            self._right = [count / 2 for count in self._right]

    def expected(self) -> list[float]:
        """How many tokens a row draws in a pass with no guess, with one, and so on, as far as the latest show."""
        return list(accumulate([1.0, *(count / self._guesses for count in self._right)]))

    def guess(self, ids: Sequence[int]) -> list[int]:
        """Always as many, whatever was seen before."""
        context = list(ids[-DRAFT_ORDERS[0] :])
        for _ in range(self.size):
            keys = (tuple(context[-order:]) for order in DRAFT_ORDERS)
            continuations = (known[key] for key in keys for known in (self._recent, self._older) if key in known)
            context.append(next(continuations, context[-1]))
        return context[-self.size :]


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """The length of the common prefix of two sequences of ids."""
    return bisect_left(range(1, min(len(left), len(right)) + 1), True, key=lambda size: left[:size] != right[:size])
