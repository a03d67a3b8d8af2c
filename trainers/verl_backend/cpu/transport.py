"""A transport for weights through Ray's object store, for the mode in which trainer and engines share no device.

veRL's own (nccl, nixl, mooncake) copy from GPU to GPU. This one copies between any two machines of the cluster, through
the memory of both, which holds all weights for a moment: for CPUs and for small models. Choose it under
`actor_rollout_ref.rollout.checkpoint_engine` with `backend: ray`, and this module's name as `custom_backend_module`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, TypeAlias

import ray  # type: ignore[import-not-found,unused-ignore]
import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry  # type: ignore[import-not-found,unused-ignore]

from ..verl_names import RAY

Bucket: TypeAlias = list[tuple[str, torch.Tensor]]


class WeightQueue:
    """A Ray actor for one update of the weights: the sender puts buckets in, and every receiver takes all of them."""

    def __init__(self) -> None:
        self._buckets: list[Any] = []
        self._closed = asyncio.Event()

    async def put(self, references: list[Any]) -> None:
        """Add a bucket: a list with its one reference. Ray would resolve a bare one and send the object here."""
        self._buckets += references

    async def close(self) -> None:
        """Mark the last bucket as sent."""
        self._closed.set()

    async def take(self) -> list[Any]:
        """Wait for the last bucket, since memory holds all of them anyway; returns their references."""
        await self._closed.wait()
        return self._buckets


@CheckpointEngineRegistry.register(RAY)
class RayTransport(CheckpointEngine):  # type: ignore[misc,unused-ignore]
    """Both ends. The first of those that train sends; the others only take part in gathering the weights."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._bucket_size = bucket_size
        self._is_sender = is_master
        self._queue: Any = None

    def prepare(self) -> Any:
        """The sender's queue, which Ray ends with its last reference."""
        return ray.remote(WeightQueue).options(num_cpus=0).remote() if self._is_sender else None

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Give the queue to all processes."""
        (queue,) = [queue for queue in metadata if queue is not None]
        return {"queue": [queue] * actor_wg_world_size}, {"queue": [queue] * rollout_world_size}

    def init_process_group(self, queue: Any) -> None:
        self._queue = queue

    def finalize(self) -> None:
        self._queue = None

    async def send_weights(self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None) -> None:
        for bucket in _buckets(weights, self._bucket_size):
            if self._is_sender:
                await self._queue.put.remote([ray.put(bucket)])
        if self._is_sender:
            await self._queue.close.remote()

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        for bucket in await self._queue.take.remote():
            for pair in await bucket:
                yield pair


def _buckets(weights: Iterable[tuple[str, torch.Tensor]], size: int) -> Iterator[Bucket]:
    """Tensors in their order, on the CPU, as many at a time as fit into `size` bytes.

    A larger one is a bucket by itself.
    """
    bucket: Bucket = []
    filled = 0
    for name, tensor in weights:
        if bucket and filled + tensor.nbytes > size:
            yield bucket
            bucket, filled = [], 0
        bucket.append((name, tensor.detach().cpu()))
        filled += tensor.nbytes
    if bucket:
        yield bucket
