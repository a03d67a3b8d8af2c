"""The items of a bank in the order of a list, with their words ready to be searched; made anew when the bank changes."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.item import BankItem, ItemStatus


class Listed:
    """All items of a bank at one moment, newest first."""

    def __init__(self, items: Sequence[BankItem]) -> None:
        self.items = items
        counts = Counter(item.status for item in items)
        self.counts: Mapping[str, int] = {one.value: counts[one] for one in ItemStatus}

    @cached_property
    def _folded(self) -> list[str]:
        reflections = (item.reflection for item in self.items)
        return [f"{one.question}\n{one.rubrics}\n{one.takeaways}".casefold() for one in reflections]

    def select(self, text: str, status: ItemStatus | None) -> Sequence[BankItem]:
        """The items that hold the text somewhere and have the status; all where neither is asked for."""
        folded = text.casefold().strip()
        if not folded:
            return self.items if status is None else [item for item in self.items if item.status is status]
        found = (item for item, words in zip(self.items, self._folded, strict=True) if folded in words)
        return [item for item in found if status is None or item.status is status]


class BankListing:
    """The listing of one bank. Safe under threads."""

    def __init__(self, bank: RubricBank) -> None:
        self.bank = bank
        self._lock = threading.Lock()
        self._mark: tuple[str, int] | None = None
        self._listed = Listed(())

    def read(self) -> Listed:
        """The items as they are now."""
        with self._lock:
            mark = self.bank.state_mark
            if mark != self._mark:
                self._listed, self._mark = Listed(self.bank.items()[::-1]), mark
            return self._listed
