"""The replies that a judge gave to one question, in the order in which they were asked for."""

from collections.abc import Sequence

API_ERROR = "<<API_ERROR>>"
"""Stands in a recording where the request itself failed."""


class Replies:
    """Hands out recorded replies one by one and counts the calls; after the last, the last again.

    A recording holds a refusing judge once; an official scorer that asks three times gets it three times.
    """

    def __init__(self, recorded: Sequence[str]) -> None:
        self._recorded = tuple(recorded)
        self.calls = 0

    def ask(self) -> str | None:
        """The next reply, or None where the request failed. Every call counts, failed ones too."""
        index = min(self.calls, len(self._recorded) - 1)
        self.calls += 1
        reply = self._recorded[index] if self._recorded else API_ERROR
        return None if reply == API_ERROR else reply
