"""The functions that touch what is inside veRL, which promises none of it.

`tests/lanes/verl/test_contract.py` lists all that is touched, each with its reason, and the methods that are
overridden. It reads them from the installed veRL, so that a new release fails there and not in a run.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ray  # type: ignore[import-not-found,unused-ignore]
import torch
import transfer_queue as tq  # type: ignore[import-not-found,unused-ignore]
from omegaconf import open_dict  # type: ignore[import-not-found,unused-ignore]
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError  # type: ignore[import-not-found,unused-ignore]
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from transfer_queue import KVBatchMeta

from .lost_processes import ENGINE_LOST, lost_process
from .rows import OURS
from .time_limits import WATCH_EVERY

_UNFINISHED = ("pending", "running")
_POLL_SECONDS = 0.1


class CreditedRow(NamedTuple):
    """A rollout's row: its key, its group, the stage of each token of its response, and its oldest weights."""

    key: str
    group: str
    stages: np.ndarray
    version: int


def read_credited(batch: KVBatchMeta) -> list[CreditedRow]:
    """The rollouts of a batch; rows that veRL added to fill it up are left out."""
    rows = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
    return [
        CreditedRow(key, extra[OURS]["group"], extra[OURS]["stages"], int(tag["min_global_steps"]))
        for key, tag, extra in zip(batch.keys, batch.tags, list(rows["extra_fields"]), strict=True)
        if not tag.get("is_padding", False)
    ]


def read_tokens(keys: Sequence[str], partition: str, fields: Sequence[str]) -> dict[str, np.ndarray]:
    """Fields with one entry per response token, row after row; fields that the queue lacks are left out."""
    rows = tq.kv_batch_get(keys=list(keys), partition_id=partition, select_fields=list(fields))
    return {
        name: np.concatenate([row.float().numpy() for row in rows[name].unbind()]) for name in fields if name in rows
    }


def wait_for_groups(groups: Sequence[str], partition: str) -> None:
    """Wait until the rollout workers have marked these groups as finished.

    A group that has left the queue is finished.
    """
    while any(_tags(partition).get(group, {}).get("status") in _UNFINISHED for group in groups):
        time.sleep(_POLL_SECONDS)


def held_groups(partition: str) -> set[str]:
    """The groups in the queue: not trained on, and not evicted."""
    return {key for key, tag in _tags(partition).items() if tag.get("is_prompt", False)}


def remove_trained(partition: str) -> None:
    """Remove the rows of the step that a checkpoint was taken in.

    veRL clears them only after it has saved its queue.
    """
    held = held_groups(partition)
    trained = [key for key in _tags(partition) if key.split("_")[0] not in held]
    if trained:
        tq.kv_clear(keys=trained, partition_id=partition)


def sample_again(groups: Sequence[str], partition: str) -> None:
    """Set finished groups of a checkpoint back to pending, which veRL samples when it resumes."""
    tags = _tags(partition)
    known = [group for group in groups if group in tags]
    if known:
        pending = [{**tags[group], "status": _UNFINISHED[0]} for group in known]
        tq.kv_batch_put(keys=known, partition_id=partition, tags=pending)


def _tags(partition: str) -> Mapping[str, Mapping[str, Any]]:
    tags: Mapping[str, Mapping[str, Any]] = (tq.kv_list(partition) or {}).get(partition, {})
    return tags


@contextmanager
def phase_a_config(config: Any, *, temperature: float, mini_batch: int) -> Iterator[None]:
    """Change veRL's config for an update on reflections: their temperature, groups of one, and their mini-batch."""
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    before = (rollout.temperature, rollout.n, actor.ppo_mini_batch_size)
    with open_dict(config):
        rollout.temperature, rollout.n, actor.ppo_mini_batch_size = temperature, 1, mini_batch
        try:
            yield
        finally:
            rollout.temperature, rollout.n, actor.ppo_mini_batch_size = before


def check_processes(trainer: Any, others: Sequence[Any]) -> None:
    """Raise BoundaryError where an engine, a rollout worker or one of `others` is gone.

    While a step is sampled the trainer calls none of these, so it would not notice.
    """
    engines = [engine for manager in trainer._rollout_server_managers() for engine in manager.server_handles]
    actors = [*others, *trainer.agent_loop_manager.agent_loop_workers, *engines]
    try:
        ray.get([actor.__ray_ready__.remote() for actor in actors], timeout=WATCH_EVERY)
        dead = ray.get([engine.__ray_call__.remote(has_lost_engine) for engine in engines], timeout=WATCH_EVERY)
    except (GetTimeoutError, ActorUnavailableError):
        return  # Busy, or unreachable for a moment: the next check tells.
    except RayActorError as gone:
        raise lost_process(str(gone)) from gone
    if any(dead):
        raise lost_process(ENGINE_LOST)


def has_lost_engine(server: Any) -> bool:
    """Called in a server's own process: vLLM's outlives its engine, and nothing else reports that."""
    return bool(getattr(getattr(server, "engine", None), "errored", False))


def reshard(worker: Any, actor: Path) -> None:
    """Called in a training process: write its shards of a checkpoint where another number of ranks has saved it.

    veRL then loads them as it loads its own. Weights and moments are the same numbers, and each rank reads no more of
    them than it keeps. The state of the random generators, which nothing in a step uses, is the first rank's.
    """
    saved_by = json.loads((actor / "fsdp_config.json").read_text(encoding="utf-8"))["world_size"]
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    if ranks == saved_by:
        return
    engine = next(role.actor.engine for role in worker.worker_dict.values() if role.actor is not None)
    for kind in ("model", "optim", "extra_state"):
        files = [actor / f"{kind}_world_size_{saved_by}_rank_{former}.pt" for former in range(saved_by)]
        saved = [torch.load(file, map_location="cpu", mmap=True, weights_only=False) for file in files]
        torch.save(_own_part(saved, engine.device_mesh), actor / f"{kind}_world_size_{ranks}_rank_{rank}.pt")


def _own_part(saved: Sequence[Any], mesh: DeviceMesh) -> Any:
    """This rank's part of a state, from those that the former ranks have saved. FSDP2 divides tensors by their rows."""
    first = saved[0]
    if isinstance(first, Mapping):
        return {name: _own_part([state[name] for state in saved], mesh) for name in first}
    if not isinstance(first, DTensor):
        return first
    # Weights are sharded along the last dimension of a mesh, and copied along the other, if there is one.
    copies = mesh.ndim - 1
    rows = -(-len(first) // mesh.size(copies))
    start = rows * mesh.get_local_rank(copies)
    shares = []
    for state in saved[: first.device_mesh.size(first.device_mesh.ndim - 1)]:
        shard = state.to_local()
        shares.append(shard[max(0, start) : max(0, start + rows)])
        start -= len(shard)
    placements = [Replicate()] * copies + [Shard(0)]
    return DTensor.from_local(torch.cat(shares), mesh, placements, shape=first.shape, stride=first.stride())
