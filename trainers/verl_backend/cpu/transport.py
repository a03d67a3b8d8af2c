"""A transport for weights through Ray's object store, for the mode in which trainer and engines share no device.

veRL's own (nccl, nixl, mooncake) go from GPU to GPU. This one goes between any two machines of the cluster, by way of
the memory of both, which holds the whole weights for a moment: for CPUs and for small models. It is chosen with
`actor_rollout_ref.rollout.checkpoint_engine`: `backend: ray` and, for veRL to find it, this module's name as
`custom_backend_module`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, TypeAlias

import ray  # type: ignore[import-not-found,unused-ignore]
import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry  # type: ignore[import-not-found,unused-ignore]

from trainers.verl_backend.settings import RAY

Bucket: TypeAlias = list[tuple[str, torch.Tensor]]


class WeightQueue:
    """A Ray actor, for one change of weights: the sender puts buckets in, and every receiver takes all of them out."""

    def __init__(self) -> None:
        self._buckets: list[Any] = []
        self._is_full = False
        self._news = asyncio.Condition()

    async def put(self, held: list[Any]) -> None:
        """Another bucket: a list of its one reference, because Ray would send a bare one's object here."""
        async with self._news:
            self._buckets += held
            self._news.notify_all()

    async def close(self) -> None:
        """There are no more."""
        async with self._news:
            self._is_full = True
            self._news.notify_all()

    async def take(self, number: int) -> list[Any]:
        """The reference of a bucket, as soon as it is there; nothing after the last."""
        async with self._news:
            await self._news.wait_for(lambda: self._is_full or number < len(self._buckets))
        return self._buckets[number : number + 1]


@CheckpointEngineRegistry.register(RAY)
class RayTransport(CheckpointEngine):  # type: ignore[misc,unused-ignore]
    """Both ends. The first of those that train sends; the others only take part in gathering the weights."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._bucket_size = bucket_size
        self._is_sender = is_master
        self._mailbox: Any = None

    def prepare(self) -> Any:
        """The sender's mailbox, which ends with the last who knows it."""
        return ray.remote(WeightQueue).options(num_cpus=0).remote() if self._is_sender else None

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Everybody is told the mailbox."""
        (mailbox,) = [told for told in metadata if told is not None]
        return {"mailbox": [mailbox] * actor_wg_world_size}, {"mailbox": [mailbox] * rollout_world_size}

    def init_process_group(self, mailbox: Any) -> None:
        self._mailbox = mailbox

    def finalize(self) -> None:
        self._mailbox = None

    async def send_weights(self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None) -> None:
        for bucket in _buckets(weights, self._bucket_size):
            if self._is_sender:
                await self._mailbox.put.remote([ray.put(bucket)])
        if self._is_sender:
            await self._mailbox.close.remote()

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        number = 0
        while held := await self._mailbox.take.remote(number):
            for name, tensor in await held[0]:
                yield name, tensor
            number += 1


def _buckets(weights: Iterable[tuple[str, torch.Tensor]], size: int) -> Iterator[Bucket]:
    """Tensors in their order, on the CPU, as many at a time as fit into `size` bytes; a larger one comes alone."""
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
