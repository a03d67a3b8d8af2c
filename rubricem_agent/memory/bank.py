"""The rubric bank: reflections by question, written through a gate and retrieved by key or by similarity.

    bank = RubricBank(store, embedder)
    bank.write(reflection)                         -> BankItem, or the Refusal of the gate
    bank.retrieve(question, "cross")       -> up to two lessons of other questions
    bank.retrieve(question, "within")      -> the question's own lesson, if there is one

Safe under threads, and under several processes on one store: each change is made under the store's lock, after
reading the changes of others, and each retrieval first asks the store for changes. The index in memory is searched
exactly by inner product. All reflections on one question share one vector, so overwriting an item moves no vector.
"""

import threading
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from rubricem_agent.memory.embed import Embedder, Floats
from rubricem_agent.memory.gate import Refusal, WriteGate
from rubricem_agent.memory.item_index import ItemIndex
from rubricem_agent.memory.probation import Decision, GuidedScore, ProbationSettings, decide, measure_effect
from rubricem_agent.memory.store import ItemStore, MemoryStore, text_digest
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.reflection import Reflection
from rubricem_env.domain.settings import Settings
from rubricem_env.domain.trajectory import query_key
from rubricem_env.scaffold.copies import ShownText
from rubricem_records.bank.bank_items import (
    SHOWN,
    BankItem,
    ItemStatus,
    LessonOrigin,
    Retrieved,
    ShownStatus,
    StoredItem,
)

Retrieval = Literal["cross", "within"]
"""Which lessons are retrieved: those of other, similar questions, or the question's own."""


class RetrievalSettings(Settings):
    """The defaults are the paper's, where it gives one."""

    top_k: Annotated[int, Field(ge=1)] = 2
    """Of CROSS retrieval; WITHIN has one item at most."""
    near_duplicate: Annotated[float, Field(gt=0.0, le=1.01)] = 0.98
    """Questions at least this similar count as the same one and are left out of CROSS; above 1 none is."""
    least_similarity: Annotated[float, Field(ge=-1.0, le=1.0)] = -1.0
    """A lesson of another question is shown only from this cosine on, so that one lesson of a small bank does not
    stand before every question. -1: always.
    """
    max_age: Annotated[int, Field(ge=1)] | None = None
    """Steps after which a lesson is shown no more, unless a person has approved it; None: it does not age."""


_CURRENT: Sequence[ItemStatus] = (*SHOWN, "quarantined")


class RubricBank:
    """One bank, open. All its items are in memory."""

    def __init__(
        self,
        store: ItemStore,
        embedder: Embedder | None,
        *,
        gate: WriteGate | None = None,
        settings: RetrievalSettings | None = None,
        probation: ProbationSettings | None = None,
        is_moderated: bool = False,
    ) -> None:
        """A bank over a store, whose items are read.

        A new item is admitted at once, as in the paper; or it is on probation; or, if moderated, waits for a person.

        Without an embedder, in whose place no model need be loaded, all works except writing and searching for text.

        Raises:
            FileFormatError: the store's vectors come from another embedder.
        """
        if embedder is not None and (store.embedder, store.dimension) != (embedder.name, embedder.dimension):
            raise FileFormatError(
                f"the bank holds vectors of {store.embedder} ({store.dimension} numbers); {embedder.name} "
                f"({embedder.dimension}) cannot search them. Open it with its own embedder, or export its items and "
                "import them into a new one."
            )
        self._store = store
        self._embedder = embedder
        self._gate = gate or WriteGate()
        self._admit_as: ItemStatus = "quarantined" if is_moderated else "probation" if probation else "active"
        self._lock = threading.RLock()
        self._index = ItemIndex(store.dimension)
        self._mark: int | None = None
        self._generation = ""
        self.settings = settings or RetrievalSettings()
        self.probation = probation
        self.embedder_name = store.embedder
        self.refresh()

    @classmethod
    def in_memory(cls, embedder: Embedder) -> "RubricBank":
        """An empty bank that lasts as long as the process."""
        return cls(MemoryStore(embedder=embedder.name, dimension=embedder.dimension), embedder)

    def __len__(self) -> int:
        """How many items may be shown: the active ones, and those on probation."""
        return sum(item.status in SHOWN for item in self.items())

    @property
    def state_mark(self) -> tuple[str, int]:
        """Differs after every change by any process."""
        with self._lock:
            self.refresh()
            return self._generation, self._index.revision

    def refresh(self) -> None:
        """Take in what other processes have written since the last look."""
        with self._lock:
            mark = self._store.change_mark()
            if mark != self._mark:
                self._take_in(mark)

    def write(
        self,
        reflection: Reflection,
        *,
        pages: ShownText | None = None,
        origin: LessonOrigin | None = None,
        is_late: bool = False,
    ) -> BankItem | Refusal:
        """Add a reflection, which replaces the question's earlier one of the same status; or return why not.

        `pages` is what tools have shown in the attempt, none of which may be copied. `is_late` says that the lesson of
        a later attempt is in the bank already and stays active. The item is durable once this returns.

        Raises:
            BankStoreError: the store failed.
        """
        vector = self._vector(reflection.query_key, reflection.question)
        with self._lock, self._store.exclusive():
            self._refresh_to_write()
            refusal = self._refuse(reflection, pages, origin)
            if refusal is not None:
                return refusal
            status = "superseded" if is_late else self._admit_as
            item = BankItem(
                id=self._index.next_id,
                revision=self._index.revision + 1,
                reflection=reflection,
                status=status,
                reason="waits for approval" if status == "quarantined" else "",
                origin=origin or LessonOrigin(),
            )
            self._put(item, vector)
            return item

    def refusal(
        self, reflection: Reflection, *, pages: ShownText | None = None, origin: LessonOrigin | None = None
    ) -> Refusal | None:
        """Why `write` would refuse the reflection, or None; nothing is written."""
        with self._lock:
            self.refresh()
            return self._refuse(reflection, pages, origin)

    def retrieve(self, question: str, mode: Retrieval) -> tuple[Retrieved, ...]:
        """The active lessons for a question, most similar first; empty where there are none.

        CROSS leaves out the question itself and its near duplicates.
        """
        return self._retrieve(question, mode, "active", self.settings.top_k)

    def retrieve_on_probation(self, question: str, mode: Retrieval) -> tuple[Retrieved, ...]:
        """The lessons that wait for a decision, which only a share of the attempts at the question may see."""
        if self.probation is None:
            return ()
        return self._retrieve(question, mode, "probation", self.probation.at_once)

    def record_scores(self, question: str, attempts: Sequence[GuidedScore]) -> tuple[BankItem, ...]:
        """Measure the lessons that some attempts at a question saw; returns the items that changed.

        A lesson is admitted or quarantined as soon as its effect says so. Without probation nothing is measured.

        Raises:
            BankStoreError: the store failed.
        """
        seen = sorted({number for attempt in attempts for number in attempt.items})
        if self.probation is None or not seen:
            return ()
        changed = []
        with self._lock, self._store.exclusive():
            self._refresh_to_write()
            for number in seen:
                item = self._index.items.get(number)
                if item is None or item.status not in SHOWN:
                    continue
                effect = measure_effect(item, attempts, question=query_key(question), settings=self.probation)
                if effect != item.effect:
                    measured = item.model_copy(update={"effect": effect})
                    decision = decide(measured, self.probation) or Decision(item.status, item.reason)
                    changed.append(self._overwrite(measured, decision.status, decision.reason))
        return tuple(changed)

    def retire(self, step: int) -> None:
        """Withdraw the lessons that are older than `max_age` at this step."""
        max_age = self.settings.max_age
        if max_age is None:
            return
        with self._lock, self._store.exclusive():
            self._refresh_to_write()
            for item in [item for item in self._index.items.values() if item.status in SHOWN]:
                if item.reflection.provenance.step < step - max_age and not item.decided_by_person:
                    self._overwrite(item, "superseded", f"older than {max_age} steps")

    def search(self, text: str, *, limit: int) -> tuple[Retrieved, ...]:
        """The active items whose questions are most similar to a text, near duplicates included. For people."""
        vector = self._vector(query_key(text), text)
        with self._lock:
            self.refresh()
            return self._index.nearest(vector, limit)

    def items(self) -> tuple[BankItem, ...]:
        """All items of any status, oldest first."""
        with self._lock:
            self.refresh()
            return tuple(item for _, item in sorted(self._index.items.items()))

    def item(self, number: int) -> BankItem:
        """One item.

        Raises:
            UsageError: there is none of that number.
        """
        with self._lock:
            self.refresh()
            item = self._index.items.get(number)
        if item is None:
            raise UsageError(f"the bank has no item {number}; `rubricem bank list --all` shows those it has.")
        return item

    def history(self, question_key: str) -> tuple[BankItem, ...]:
        """All reflections on one question, oldest first."""
        with self._lock:
            self.refresh()
            return self._index.history(question_key)

    def change(self, number: int, status: ItemStatus, reason: str = "") -> BankItem:
        """Make an item active, as the one of its question, withhold it as quarantined, or remove it.

        A removed item is a tombstone: never retrieved or exported, and its text is refused from now on.

        Raises:
            UsageError: no such item; or it was superseded or removed, after which it can only be removed.
        """
        with self._lock, self._store.exclusive():
            self._refresh_to_write()
            item = self.item(number)
            if status != "removed" and item.status not in _CURRENT:
                raise UsageError(
                    f"item {number} is {item.status}; only one that is active, on probation or in quarantine can "
                    f"become {status}."
                )
            return self._overwrite(item.model_copy(update={"decided_by_person": True}), status, reason)

    def contents(self, *, since: int = 0) -> tuple[StoredItem, ...]:
        """The items that writes after revision `since` have touched, with their vectors, oldest first."""
        with self._lock:
            self.refresh()
            stored = (row for row in self._index.stored() if row.item.revision > since)
            return tuple(StoredItem(item, vector.copy()) for item, vector in stored)

    def restore(self, contents: Sequence[StoredItem]) -> None:
        """Make these the only items of bank and store, atomically.

        What a person has removed or put into quarantine stays so.
        """
        with self._lock, self._store.exclusive():
            self._refresh_to_write()
            self._store.replace_all([self._keep_withdrawn(row) for row in contents])

    def _retrieve(self, question: str, mode: Retrieval, status: ShownStatus, limit: int) -> tuple[Retrieved, ...]:
        key = query_key(question)
        if mode == "within":
            with self._lock:
                self.refresh()
                own = self._index.current(key, status)
                return (Retrieved(own, 1.0),) if own else ()
        vector = self._vector(key, question)
        settings = self.settings
        with self._lock:
            self.refresh()
            return self._index.nearest(
                vector,
                limit,
                status=status,
                without=key,
                least=settings.least_similarity,
                below=settings.near_duplicate,
            )

    def _refuse(self, reflection: Reflection, pages: ShownText | None, origin: LessonOrigin | None) -> Refusal | None:
        index = self._index
        return self._gate.refuse(
            reflection, pages=pages, origin=origin, removed=index.removed, quarantined=index.quarantined
        )

    def _refresh_to_write(self) -> None:
        """Refresh under the store's lock, and verify which collection holds the items.

        A process killed while it replaced them may have left no change mark; a write to the old ones would be lost.
        """
        mark = self._store.change_mark()
        if mark != self._mark or self._store.generation() != self._generation:
            self._take_in(mark)

    def _take_in(self, mark: int) -> None:
        generation = self._store.generation()
        if generation != self._generation:
            self._index = ItemIndex(self._store.dimension)
            self._generation = generation
        self._index.apply(self._store.changed_since(self._index.revision))
        self._mark = mark

    def _keep_withdrawn(self, row: StoredItem) -> StoredItem:
        item, vector = row
        present = self._index.items.get(item.id)
        if item.status != "removed" and text_digest(item.reflection) in self._index.removed:
            kept: dict[str, object] = {"status": "removed", "reason": "removed after this snapshot was taken"}
        elif (
            present is not None
            and present.decided_by_person
            and present.status == "quarantined"
            and present.reflection == item.reflection
        ):
            kept = {"status": "quarantined", "reason": present.reason, "decided_by_person": True}
        else:
            return row
        return StoredItem(item.model_copy(update=kept), vector)

    def _vector(self, key: str, question: str) -> Floats:
        """The vector of a question. Embedding is slow: it runs outside the lock, and only for a new question."""
        with self._lock:
            known = self._index.vector(key)
        if known is not None:
            return known.copy()
        if self._embedder is None:
            raise UsageError(
                f"this bank was opened without its embedder {self.embedder_name}; open it with one to embed a text."
            )
        vector: Floats = self._embedder.embed([question.strip()])[0]
        return vector

    def _overwrite(self, item: BankItem, status: ItemStatus, reason: str) -> BankItem:
        """Give an item of the index another status; the caller holds the locks."""
        changed = item.model_copy(update={"status": status, "reason": reason, "revision": self._index.revision + 1})
        known = self._index.vector(item.key)
        assert known is not None, "an item in the index has its vector there"
        self._put(changed, known)
        return changed

    def _put(self, item: BankItem, vector: Floats) -> None:
        """Write an item; the earlier one of its question with the same status is superseded in the same call."""
        rows = [StoredItem(item, vector)]
        earlier = self._index.current(item.key, item.status) if item.status in SHOWN else None
        if earlier is not None and earlier.id != item.id:
            stepped_back = earlier.model_copy(update={"status": "superseded", "revision": item.revision})
            rows.append(StoredItem(stepped_back, vector))
        self._store.put(rows)
        # No other process can have written since the refresh under this lock, so nothing need be read back.
        self._index.apply(rows)
        self._mark = self._store.change_mark()
