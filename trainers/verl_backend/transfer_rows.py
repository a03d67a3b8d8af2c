"""veRL's queue of rows, TransferQueue: the one module that calls it. Another queue is another module like this one."""

from collections.abc import Mapping, Sequence
from typing import Any

import transfer_queue as tq  # type: ignore[import-not-found,unused-ignore]
from transfer_queue import KVBatchMeta
from verl.utils import tensordict_utils as tu  # type: ignore[import-not-found,unused-ignore]

from .row_queue import Tag


class TransferRows:
    """TransferQueue of the running cluster, as `RowQueue`."""

    def tags(self, partition: str) -> Mapping[str, Tag]:
        listed: Mapping[str, Tag] = (tq.kv_list(partition) or {}).get(partition, {})
        return listed

    def read(self, partition: str, keys: Sequence[str], fields: Sequence[str]) -> Mapping[str, Sequence[Any]]:
        rows = tq.kv_batch_get(keys=list(keys), partition_id=partition, select_fields=list(fields))
        return {name: _rows_of(rows[name]) for name in fields if name in rows}

    def put(self, partition: str, tags: Mapping[str, Tag], rows: Sequence[Mapping[str, Any]] = ()) -> KVBatchMeta:
        fields = {"fields": tu.list_of_dict_to_tensordict(list(rows))} if rows else {}
        given = [dict(tag) for tag in tags.values()]
        return tq.kv_batch_put(keys=list(tags), partition_id=partition, tags=given, **fields)

    def clear(self, partition: str, keys: Sequence[str]) -> None:
        tq.kv_clear(keys=list(keys), partition_id=partition)


def tags_of(batch: KVBatchMeta) -> dict[str, Tag]:
    """The tags of a batch's rows by key, in the order of the batch."""
    return dict(zip(batch.keys, batch.tags, strict=True))


def _rows_of(column: Any) -> Sequence[Any]:
    """The rows of a column: of a tensor, or of a list of other values."""
    rows: Sequence[Any] = column.unbind() if hasattr(column, "unbind") else list(column)
    return rows
