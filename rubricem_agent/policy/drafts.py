"""Guesses of the next tokens of a conversation, which a pass of the model checks (speculative decoding by n-grams)."""

from collections.abc import Sequence

DRAFT_ORDERS = (8, 4, 2)
"""How many tokens before a guess must be the same, the most telling first."""
DRAFT_ENTRIES = 200_000
"""Remembered at most twice: about 60 MB."""


class Drafts:
    """Guesses of the next tokens: what followed the same few tokens last time, in this or another conversation.

    A pass of the model checks them all, and what it draws does not depend on them: a token is drawn from the same
    distribution with the same random number, and the guesses after one that was not drawn are dropped.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._recent: dict[tuple[int, ...], int] = {}
        self._older: dict[tuple[int, ...], int] = {}

    def forget(self) -> None:
        """Forget everything, so that what is guessed next depends on what is learnt next alone."""
        self._recent, self._older = {}, {}

    def learn(self, ids: Sequence[int], start: int) -> None:
        """Remember what ids[start:] followed."""
        for end in range(start, len(ids)):
            for order in DRAFT_ORDERS:
                self._recent[tuple(ids[max(0, end - order) : end])] = ids[end]
        if len(self._recent) > DRAFT_ENTRIES:
            self._older = self._recent
            self._recent = {}

    def guess(self, ids: Sequence[int]) -> list[int]:
        """Always as many: every pass is as wide, whatever was seen before."""
        context = list(ids[-DRAFT_ORDERS[0] :])
        for _ in range(self.size):
            keys = (tuple(context[-order:]) for order in DRAFT_ORDERS)
            continuations = (known[key] for key in keys for known in (self._recent, self._older) if key in known)
            context.append(next(continuations, context[-1]))
        return context[-self.size :]
