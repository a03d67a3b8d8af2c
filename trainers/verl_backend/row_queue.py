"""The queue of a run's rows, by an interface of ours: what we read of it, write into it and remove from it.

Workers write rollouts into it, with a tag for each row and one for each group; the trainer reads, tags and clears.
veRL's own is `transfer_rows.TransferRows`, the one module that knows its library.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from .rows import OURS

_UNFINISHED = ("pending", "running")
_POLL_SECONDS = 0.1

Tag = Mapping[str, Any]


class RowQueue(Protocol):
    """Rows by key, each with fields and a tag, in partitions."""

    def tags(self, partition: str) -> Mapping[str, Tag]:
        """The tags of all rows and groups, by key."""
        ...

    def read(self, partition: str, keys: Sequence[str], fields: Sequence[str]) -> Mapping[str, Sequence[Any]]:
        """Fields of these rows, in their order; a field that the rows lack is left out."""
        ...

    def put(self, partition: str, tags: Mapping[str, Tag], rows: Sequence[Mapping[str, Any]] = ()) -> Any:
        """Write tags by key, and with them the rows in the same order, if there are any; returns the batch for veRL."""
        ...

    def clear(self, partition: str, keys: Sequence[str]) -> None:
        """Remove these rows."""
        ...


class CreditedRow(NamedTuple):
    """A window of a rollout: its key, its group, the stage of each token of its response, and its oldest weights."""

    key: str
    group: str
    stages: np.ndarray
    version: int

    @property
    def rollout(self) -> str:
        return rollout_of(self.key)


def rollout_of(key: str) -> str:
    """The rollout of a row: the key without the number of the window."""
    return key.rpartition("_")[0]


def rows_of_update(keys: Sequence[str], *, rollouts: int, multiple: int) -> int | None:
    """How many of these rows each update takes, for about so many rollouts; None where every rollout has one row.

    It is a `multiple`, for which the rows are filled up.
    """
    sampled = len(set(map(rollout_of, keys)))
    if sampled == len(keys):
        return None
    updates = math.ceil(sampled / rollouts)
    return math.ceil(len(keys) / updates / multiple) * multiple


def read_credited(queue: RowQueue, partition: str, tags: Mapping[str, Tag]) -> list[CreditedRow]:
    """The windows among these rows; rows that veRL added to fill a batch up are left out."""
    rows = queue.read(partition, list(tags), ["extra_fields"])["extra_fields"]
    return [
        CreditedRow(key, own["group"], own["stages"], int(tag["min_global_steps"]))
        for (key, tag), own in zip(tags.items(), (extra[OURS] for extra in rows), strict=True)
        if not tag.get("is_padding", False)
    ]


def read_tokens(queue: RowQueue, partition: str, keys: Sequence[str], fields: Sequence[str]) -> dict[str, np.ndarray]:
    """Fields with one entry per response token, row after row; fields that the queue lacks are left out."""
    rows = queue.read(partition, keys, fields)
    return {name: np.concatenate([row.float().numpy() for row in rows[name]]) for name in fields if name in rows}


def wait_for_groups(
    queue: RowQueue, partition: str, groups: Iterable[str], *, sleep: Callable[[float], object] = time.sleep
) -> None:
    """Wait until the rollout workers have marked these groups as finished.

    A group that has left the queue is finished.
    """
    while any(queue.tags(partition).get(group, {}).get("status") in _UNFINISHED for group in groups):
        sleep(_POLL_SECONDS)


def held_groups(queue: RowQueue, partition: str) -> set[str]:
    """The groups in the queue: not trained on, and not evicted."""
    return {key for key, tag in queue.tags(partition).items() if tag.get("is_prompt", False)}


def remove_trained(queue: RowQueue, partition: str) -> None:
    """Remove the rows of the step that a checkpoint was taken in.

    veRL clears them only after it has saved its queue.
    """
    held = held_groups(queue, partition)
    trained = [key for key in queue.tags(partition) if key.split("_")[0] not in held]
    if trained:
        queue.clear(partition, trained)


def sample_again(queue: RowQueue, partition: str, groups: Iterable[str]) -> None:
    """Set finished groups of a checkpoint back to pending, which veRL samples when it resumes."""
    tags = queue.tags(partition)
    pending = {group: {**tags[group], "status": _UNFINISHED[0]} for group in groups if group in tags}
    if pending:
        queue.put(partition, pending)
