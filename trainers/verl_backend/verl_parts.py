"""The functions that touch what is inside veRL, which promises none of it.

`tests/lanes/verl/test_contract.py` lists all that is touched, each with its reason, and the methods that are
overridden. It reads them from the installed veRL, so that a new release fails there and not in a run.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray  # type: ignore[import-not-found,unused-ignore]
import torch
from omegaconf import open_dict  # type: ignore[import-not-found,unused-ignore]
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError  # type: ignore[import-not-found,unused-ignore]
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from .lost_processes import ENGINE_LOST, lost_process
from .time_limits import WATCH_EVERY


@contextmanager
def phase_a_config(config: Any, *, temperature: float, mini_batch: int) -> Iterator[None]:
    """Change veRL's config for an update on reflections: their temperature, groups of one, and their mini-batch."""
    rollout = config.actor_rollout_ref.rollout
    before = rollout.temperature
    with open_dict(config), mini_batch_config(config, mini_batch):
        rollout.temperature = temperature
        try:
            yield
        finally:
            rollout.temperature = before


@contextmanager
def mini_batch_config(config: Any, rows: int) -> Iterator[None]:
    """Change veRL's config for updates on so many rows, instead of on a multiple of the group size."""
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    before = (rollout.n, actor.ppo_mini_batch_size)
    with open_dict(config):
        rollout.n, actor.ppo_mini_batch_size = 1, rows
        try:
            yield
        finally:
            rollout.n, actor.ppo_mini_batch_size = before


class RolloutCount:
    """veRL's training workers, which divide by so many rollouts where they would divide by rows."""

    def __init__(self, workers: Any, rollouts: int) -> None:
        self._workers, self._rollouts = workers, rollouts

    def update_actor(self, batch: Any) -> Any:
        batch.extra_info["global_batch_size"] = self._rollouts
        return self._workers.update_actor(batch)


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
