"""Rows in veRL's TransferQueue, read and written by name."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transfer_queue as tq  # type: ignore[import-not-found,unused-ignore]
from tensordict import TensorDict  # type: ignore[import-not-found,unused-ignore]
from transfer_queue import KVBatchMeta

from trainers.verl_backend.episode_row import OURS, Credentials


def read_credentials(batch: KVBatchMeta) -> dict[str, Credentials]:
    """What credit needs of each row, by the row's key; padding rows are left out."""
    rows = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
    told = list(rows["extra_fields"])
    return {
        key: extra[OURS] for key, tag, extra in zip(batch.keys, batch.tags, told, strict=True) if not is_padding(tag)
    }


def read_rows(batch: KVBatchMeta, fields: Sequence[str]) -> dict[str, list[np.ndarray]]:
    """Fields with an entry for each token of the response, an array a row; those that there are not are left out."""
    rows = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(fields))
    return {name: [row.float().numpy() for row in rows[name].unbind()] for name in fields if name in rows}


def write_advantages(batch: KVBatchMeta, advantages: Mapping[str, np.ndarray]) -> KVBatchMeta:
    """Put in each row's advantages, by key; rows without any, such as padding, get zeros."""
    lengths = [tag["response_len"] for tag in batch.tags]
    rows = [
        torch.as_tensor(advantages.get(key, np.zeros(length)), dtype=torch.float32)
        for key, length in zip(batch.keys, lengths, strict=True)
    ]
    nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    fields = TensorDict({"advantages": nested, "returns": nested}, batch_size=len(batch))
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)


def is_padding(tag: Mapping[str, Any]) -> bool:
    """Whether veRL put the row in to fill up a batch."""
    return bool(tag.get("is_padding", False))
