"""What the viewer needs of a rubric bank, and of a search in recorded lessons."""

from collections.abc import Callable, Sequence
from typing import Protocol

from rubricem_records.bank.bank_items import BankItem, ItemStatus, Retrieved, StoredItem


class ShownBank(Protocol):
    """A bank that is shown. Other processes may change it meanwhile."""

    @property
    def state_mark(self) -> tuple[str, int]:
        """Differs after every change by any process."""
        ...

    def items(self) -> tuple[BankItem, ...]:
        """All items of any status, oldest first."""
        ...

    def item(self, number: int) -> BankItem:
        """One item.

        Raises:
            UsageError: there is none of that number.
        """
        ...

    def history(self, question_key: str) -> tuple[BankItem, ...]:
        """All items of one question, oldest first."""
        ...

    def search(self, text: str, *, limit: int) -> tuple[Retrieved, ...]:
        """The active items whose questions are most similar to a text.

        Raises:
            UsageError: the bank's embedder is not here.
        """
        ...

    def change(self, number: int, status: ItemStatus, reason: str = "") -> BankItem:
        """Give an item another status.

        Raises:
            UsageError: there is no such item, or it cannot get that status.
        """
        ...


class LessonSearch(Protocol):
    """Searches the recorded lessons of one run."""

    def add(self, rows: Sequence[StoredItem]) -> None:
        """Take in new or changed items."""
        ...

    def search(self, text: str, *, limit: int) -> tuple[Retrieved, ...]:
        """The active items whose questions are most similar to a text.

        Raises:
            UsageError: the embedder of the lessons is not here.
        """
        ...


MakeSearch = Callable[[str, int], LessonSearch]
"""Makes an empty search for lessons with the vectors of an embedder: make_search(name, dimension)."""
