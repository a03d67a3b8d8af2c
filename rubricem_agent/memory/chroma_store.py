"""Items in Chroma, the durable store of record: our own vectors, no embedding function, nothing sent or downloaded.

Chroma keeps the rows. Its index is given the vectors and asked for nothing: at 100,000 random vectors it finds 0.56
of the neighbours, and it does not see what another process has written ("Error finding id"). So each row carries its
vector as metadata as well, which the database keeps for all processes alike, and the bank searches in memory. The
folder of a bank:

    bank.json   version, embedder, current collection        lock      locked while a process writes
    chroma/     Chroma's own files                           changes   grows with every change
"""

import fcntl
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
from chromadb.config import Settings

from rubricem_agent.memory.store import BankStoreError
from rubricem_env.domain.errors import FileFormatError, boundary
from rubricem_records.bank.bank_header import BANK_VERSION, BankHeader, read_header, write_header
from rubricem_records.bank.bank_items import BankItem, StoredItem

# Small, so that the part of Chroma's log that each write looks through stays short: a write then costs the same
# among 100 items and among 20,000.
_CONFIGURATION = {"hnsw": {"space": "ip", "sync_threshold": 100, "batch_size": 50}}
_PAGE = 1_000


class ChromaStore:
    """One bank's folder, open. Several processes may have it open at once."""

    def __init__(self, folder: Path, client: Any, header: BankHeader) -> None:
        self._folder = folder
        self._client = client
        self._header = header
        self.embedder = header.embedder
        self.dimension = header.dimension
        self._collection = client.get_collection(header.collection, embedding_function=None)

    @classmethod
    def open(cls, folder: Path, *, embedder: str, dimension: int) -> "ChromaStore":
        """Open the bank of a folder; where there is none, it is made for vectors of that embedder.

        Raises:
            FileFormatError: written by a newer release, no bank, or its database is lost.
            BankStoreError: Chroma cannot open it.
        """
        if folder.is_file():
            raise FileFormatError(f"{folder} is a file, and a bank is a folder. Give a folder with --bank.")
        with boundary(BankStoreError, f"make the bank {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder):
                header = read_header(folder)
                if header is None:
                    header = BankHeader(version=BANK_VERSION, embedder=embedder, dimension=dimension)
                    write_header(folder, header)
        with boundary(BankStoreError, f"open the bank {folder}"):
            client: Any = chromadb.PersistentClient(
                str(folder / "chroma"), settings=Settings(anonymized_telemetry=False, is_persistent=True)
            )
            known = {collection.name for collection in client.list_collections()}
            if header.collection not in known and _count_changes(folder):
                raise FileFormatError(
                    f"the bank {folder} has lost its database: items were written to it, and {folder / 'chroma'} does "
                    f"not hold {header.collection}. Restore that folder from a copy, or remove {folder} to begin anew."
                )
            client.get_or_create_collection(header.collection, embedding_function=None, configuration=_CONFIGURATION)
        return cls(folder, client, header)

    def exclusive(self) -> AbstractContextManager[None]:
        """Lock the lock file; the system releases it when the process dies."""
        return _locked(self._folder)

    def change_mark(self) -> int:
        return _count_changes(self._folder)

    def generation(self) -> str:
        """The name of the current collection, read again: another process may have replaced it."""
        header = read_header(self._folder)
        if header is None:
            raise FileFormatError(f"the bank {self._folder} has lost its header; the folder was removed.")
        if header.collection != self._header.collection:
            self._attach(header)
        return header.collection

    def changed_since(self, revision: int) -> Iterator[StoredItem]:
        with boundary(BankStoreError, f"read the bank {self._folder}"):
            if revision > 0:
                yield from self._rows_of(self._collection.get(where={"revision": {"$gt": revision}}, include=_PARTS))
                return
            for offset in range(0, self._collection.count(), _PAGE):
                yield from self._rows_of(self._collection.get(limit=_PAGE, offset=offset, include=_PARTS))

    def put(self, rows: Sequence[StoredItem]) -> None:
        with boundary(BankStoreError, f"write to the bank {self._folder}"):
            self._note_change()  # before as well, so that others look for a write that died half way
            _upsert(self._collection, rows)
        self._note_change()

    def replace_all(self, rows: Iterable[StoredItem]) -> None:
        """The rows go into a new collection; the change takes effect when the header names it."""
        old = self.generation()
        new = f"items-{int(old.rpartition('-')[2]) + 1}"
        with boundary(BankStoreError, f"replace the items of the bank {self._folder}"):
            if new in {collection.name for collection in self._client.list_collections()}:
                self._client.delete_collection(new)  # left by a process that died
            collection = self._client.get_or_create_collection(
                new, embedding_function=None, configuration=_CONFIGURATION
            )
            remaining = iter(rows)
            while page := list(islice(remaining, _PAGE)):
                _upsert(collection, page)
            header = self._header.model_copy(update={"collection": new})
            write_header(self._folder, header)
            self._attach(header)
            self._client.delete_collection(old)
        self._note_change()

    def close(self) -> None:
        self._client.close()

    def _attach(self, header: BankHeader) -> None:
        with boundary(BankStoreError, f"open the items of the bank {self._folder}"):
            self._collection = self._client.get_collection(header.collection, embedding_function=None)
        self._header = header

    def _rows_of(self, found: Any) -> Iterator[StoredItem]:
        for text, beside in zip(found["documents"], found["metadatas"], strict=True):
            item = BankItem.model_validate_json(text)
            vector = np.frombuffer(b64decode(beside["vector"]), dtype="<f4")
            if len(vector) != self.dimension or not np.isfinite(vector).all():
                raise ValueError(f"the vector of item {item.id} is damaged")
            yield StoredItem(item, vector)

    def _note_change(self) -> None:
        with (self._folder / "changes").open("ab") as file:
            file.write(b".")


def _count_changes(folder: Path) -> int:
    try:
        return (folder / "changes").stat().st_size
    except FileNotFoundError:
        return 0


_PARTS = ["documents", "metadatas"]


def _upsert(collection: Any, rows: Sequence[StoredItem]) -> None:
    """One call for all rows: Chroma logs a call in one transaction."""
    collection.upsert(
        ids=[f"{row.item.id:010d}" for row in rows],
        embeddings=[row.vector for row in rows],
        documents=[row.item.model_dump_json() for row in rows],
        metadatas=[
            {
                "revision": row.item.revision,
                "vector": b64encode(row.vector.astype("<f4").tobytes()).decode(),
            }
            for row in rows
        ],
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
