"""Rows in veRL's TransferQueue, read and written by name.

veRL tags each key: the key of a question is its group's name, that of a rollout is NAME_INDEX_0.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transfer_queue as tq  # type: ignore[import-not-found,unused-ignore]
from tensordict import TensorDict  # type: ignore[import-not-found,unused-ignore]
from transfer_queue import KVBatchMeta

from trainers.verl_backend.rows import OURS, CreditInputs

_UNFINISHED = ("pending", "running")
_POLL_SECONDS = 0.1


def group_of(key: str) -> str:
    """The group of a rollout's key."""
    return key.split("_")[0]


def is_padding(tag: Mapping[str, Any]) -> bool:
    """Whether veRL added the row to fill up a batch."""
    return bool(tag.get("is_padding", False))


def read_credit_inputs(batch: KVBatchMeta) -> dict[str, CreditInputs]:
    """What credit needs of each row, by its key; padding rows are left out."""
    rows = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
    extras = list(rows["extra_fields"])
    return {
        key: extra[OURS] for key, tag, extra in zip(batch.keys, batch.tags, extras, strict=True) if not is_padding(tag)
    }


def read_rows(batch: KVBatchMeta, fields: Sequence[str]) -> dict[str, list[np.ndarray]]:
    """Fields with one entry per response token, as one array per row; fields that the queue lacks are left out."""
    rows = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(fields))
    return {name: [row.float().numpy() for row in rows[name].unbind()] for name in fields if name in rows}


def write_advantages(batch: KVBatchMeta, advantages: Mapping[str, np.ndarray]) -> KVBatchMeta:
    """Write the advantages of each row, by key; rows without any, such as padding, get zeros."""
    lengths = [tag["response_len"] for tag in batch.tags]
    rows = [
        torch.as_tensor(advantages.get(key, np.zeros(length)), dtype=torch.float32)
        for key, length in zip(batch.keys, lengths, strict=True)
    ]
    nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    fields = TensorDict({"advantages": nested, "returns": nested}, batch_size=len(batch))
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)


def wait_for_groups(groups: Sequence[str], partition: str) -> None:
    """Wait until the rollout workers have marked these groups as finished. A group that has left the queue is finished."""
    while any(_tags(partition).get(group, {}).get("status") in _UNFINISHED for group in groups):
        time.sleep(_POLL_SECONDS)


def remove_trained(partition: str) -> None:
    """Remove the rows of the step that a checkpoint was taken in: veRL clears them only after it has saved its queue."""
    tags = _tags(partition)
    questions = {key for key, tag in tags.items() if tag.get("is_prompt", False)}
    trained = [key for key in tags if group_of(key) not in questions]
    if trained:
        tq.kv_clear(keys=trained, partition_id=partition)


def reset_failed_groups(partition: str, limit: float) -> None:
    """Set finished groups of a checkpoint back to pending where more than `limit` of the rollouts failed.

    An outage that stopped a run is over when it is resumed, and must not stop it again. veRL samples pending groups.
    """
    tags = _tags(partition)
    keys = [key for key, tag in tags.items() if not tag.get("is_prompt", False)]
    if not keys:
        return
    batch = KVBatchMeta(partition_id=partition, keys=keys, tags=[dict(tags[key]) for key in keys])
    valid: dict[str, list[bool]] = defaultdict(list)
    for key, row in read_credit_inputs(batch).items():
        valid[group_of(key)].append(row.scores.is_valid)
    failed = [group for group, each in valid.items() if each.count(False) > limit * len(each)]
    if failed:
        pending = [{**tags[group], "status": _UNFINISHED[0]} for group in failed]
        tq.kv_batch_put(keys=failed, partition_id=partition, tags=pending)


def _tags(partition: str) -> Mapping[str, Mapping[str, Any]]:
    tags: Mapping[str, Mapping[str, Any]] = (tq.kv_list(partition) or {}).get(partition, {})
    return tags
