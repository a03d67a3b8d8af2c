"""Rows in veRL's TransferQueue, read and written by name."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transfer_queue as tq  # type: ignore[import-not-found,unused-ignore]
from tensordict import TensorDict  # type: ignore[import-not-found,unused-ignore]
from transfer_queue import KVBatchMeta

from trainers.verl_backend.rows import OURS, Credentials

_UNDER_WAY = ("pending", "running")
_LOOK_EVERY = 0.1


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


def wait_for_groups(groups: Sequence[str], partition: str) -> None:
    """Until the rollout workers have written down all of these as over. Groups that are out of the queue are over."""
    while any(_tags(partition).get(group, {}).get("status") in _UNDER_WAY for group in groups):
        time.sleep(_LOOK_EVERY)


def forget_trained(partition: str) -> None:
    """Remove the rows of the step that a checkpoint was taken in: veRL clears them after it, so a resume has them yet."""
    tags = _tags(partition)
    questions = {key for key, tag in tags.items() if tag.get("is_prompt", False)}
    trained = [key for key in tags if key.split("_")[0] not in questions]
    if trained:
        tq.kv_clear(keys=trained, partition_id=partition)


def play_again(partition: str, limit: float) -> None:
    """Take back the groups that a checkpoint holds as over, and that lost more than `limit` of their rollouts.

    An outage that stopped a run is over when it is resumed, and must not stop it again. veRL plays what is pending.
    """
    tags = _tags(partition)
    keys = [key for key, tag in tags.items() if not tag.get("is_prompt", False)]
    if not keys:
        return
    batch = KVBatchMeta(partition_id=partition, keys=keys, tags=[dict(tags[key]) for key in keys])
    valid: dict[str, list[bool]] = defaultdict(list)
    for key, row in read_credentials(batch).items():
        valid[key.split("_")[0]].append(row.marks.is_valid)
    lost = [group for group, each in valid.items() if each.count(False) > limit * len(each)]
    if lost:
        taken_back = [{**tags[group], "status": _UNDER_WAY[0]} for group in lost]
        tq.kv_batch_put(keys=lost, partition_id=partition, tags=taken_back)


def _tags(partition: str) -> Mapping[str, Mapping[str, Any]]:
    """What veRL has noted of each key: a question's stands under the group's name, a rollout's under NAME_NUMBER_0."""
    found: Mapping[str, Mapping[str, Any]] = (tq.kv_list(partition) or {}).get(partition, {})
    return found


def is_padding(tag: Mapping[str, Any]) -> bool:
    """Whether veRL put the row in to fill up a batch."""
    return bool(tag.get("is_padding", False))
