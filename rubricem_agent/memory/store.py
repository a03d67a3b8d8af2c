"""Bank items, the stores that hold them, the errors of a bank, and the header of a bank on disk.

`ItemStore` is what the bank needs of a store of record; `MemoryStore` lasts as long as the process.
"""

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Protocol, get_args

from pydantic import Field, TypeAdapter

from rubricem_agent.files import write_atomic
from rubricem_agent.memory.embed import Floats
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import BoundaryError, FileFormatError
from rubricem_env.domain.inputs import read_text, validating
from rubricem_env.domain.reflection import Reflection
from rubricem_env.scaffold.folding import fold_letters

ItemStatus = Literal[
    "active",
    "quarantined",  # withheld until a person approves or removes it
    "superseded",  # replaced by a later reflection on the same question; stored as history
    "removed",  # a tombstone: its text is refused if it is written again
]
"""Only an active item may be shown to a policy."""
STATUSES: tuple[ItemStatus, ...] = get_args(ItemStatus)


class BankItem(Frozen):
    """A reflection in the bank. Its provenance says which step, model and prompt wrote it."""

    id: Annotated[int, Field(ge=1)]
    """Assigned in order of writing and never reused: a smaller one is older."""
    revision: Annotated[int, Field(ge=1)]
    """The bank's write that last touched this item."""
    reflection: Reflection
    status: ItemStatus = "active"
    reason: Text = ""
    """Why it is quarantined or removed."""

    @property
    def key(self) -> str:
        return self.reflection.query_key

    @property
    def is_retrievable(self) -> bool:
        return self.status == "active"


def text_digest(reflection: Reflection) -> str:
    """Equal for reflections with the same letters and digits: case, accents, spacing and punctuation do not count."""
    letters = f"{fold_letters(reflection.rubrics)}\0{fold_letters(reflection.takeaways)}"
    return hashlib.sha256(letters.encode("utf-8", "replace")).hexdigest()


class BankStoreError(BoundaryError):
    """The database under the bank failed; whether anything was written is unknown."""


class StoredItem(NamedTuple):
    """An item and the vector of its question."""

    item: BankItem
    vector: Floats


class ItemStore(Protocol):
    """The store of record. Several processes may hold the same one; each changes it under `exclusive` alone."""

    @property
    def embedder(self) -> str:
        """The name of the embedder that all vectors come from."""
        ...

    @property
    def dimension(self) -> int: ...

    def exclusive(self) -> AbstractContextManager[object]:
        """Exclude all other writers. Not reentrant."""
        ...

    def change_mark(self) -> int:
        """Differs after every change by any process; cheap enough to call before each search."""
        ...

    def generation(self) -> str:
        """Differs after `replace_all`: everything read before is stale."""
        ...

    def changed_since(self, revision: int) -> Iterator[StoredItem]:
        """Every item with a greater revision, in any order."""
        ...

    def put(self, rows: Sequence[StoredItem]) -> None:
        """Add or overwrite by item number. Once this returns, the rows outlive the process.

        Raises:
            BankStoreError: the store failed; the state of the rows is unknown.
        """
        ...

    def replace_all(self, rows: Iterable[StoredItem]) -> None:
        """Make these the only rows: all at once, or not at all."""
        ...


class MemoryStore:
    """Items in memory: for tests, and for training that saves snapshots."""

    def __init__(self, *, embedder: str, dimension: int) -> None:
        self.embedder = embedder
        self.dimension = dimension
        self._rows: dict[int, StoredItem] = {}
        self._changes = 0
        self._replaced = 0
        self._lock = threading.Lock()

    def exclusive(self) -> AbstractContextManager[object]:
        return self._lock

    def change_mark(self) -> int:
        return self._changes

    def generation(self) -> str:
        return str(self._replaced)

    def changed_since(self, revision: int) -> Iterator[StoredItem]:
        return iter([row for row in self._rows.values() if row.item.revision > revision])

    def put(self, rows: Sequence[StoredItem]) -> None:
        self._rows.update((row.item.id, row) for row in rows)
        self._changes += 1

    def replace_all(self, rows: Iterable[StoredItem]) -> None:
        self._rows = {row.item.id: row for row in rows}
        self._replaced += 1
        self._changes += 1


BANK_VERSION = 1
HEADER_FILE = "bank.json"


class BankHeader(Frozen):
    """What must be known before anything else in a bank is read."""

    version: Annotated[int, Field(ge=1)]
    embedder: Text
    dimension: Annotated[int, Field(ge=1)]
    collection: Text = "items-1"


def read_header(folder: Path) -> BankHeader | None:
    """The header of the bank in a folder; None where there is no bank.

    Raises:
        FileFormatError: it cannot be read, or a newer release wrote it.
    """
    file = folder / HEADER_FILE
    if not file.exists():
        return None
    text = read_text(file, "the folder of a rubric bank")
    with validating(f"{file} is not the header of a rubric bank"):
        version = TypeAdapter(dict[str, object]).validate_json(text).get("version")
        if isinstance(version, int) and version > BANK_VERSION:
            raise FileFormatError(
                f"the bank {folder} was written by a newer release (version {version}; this one reads up to "
                f"{BANK_VERSION}). Upgrade rubricem to use it."
            )
        return BankHeader.model_validate_json(text)


def write_header(folder: Path, header: BankHeader) -> None:
    write_atomic(folder / HEADER_FILE, header.model_dump_json())
