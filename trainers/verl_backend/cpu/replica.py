"""A sampling engine without vLLM: the policy's own decoder on transformers, as a replica of veRL's.

For machines without vLLM, and for tests. It samples as `local:` policies do, and pauses and resumes around an update of
the weights as veRL's vLLM servers do. `plugin.py` registers it for `actor_rollout_ref.rollout.name=transformers`.
"""

import os
from collections.abc import AsyncIterable, Iterable
from typing import Any, TypeAlias

import ray  # type: ignore[import-not-found,unused-ignore]
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # type: ignore[import-not-found,unused-ignore]
from verl.workers.rollout import base, replica  # type: ignore[import-not-found,unused-ignore]
from verl.workers.rollout.utils import ensure_async_iterator  # type: ignore[import-not-found,unused-ignore]

from .server import ReplicaServer

Named: TypeAlias = tuple[str, torch.Tensor]


class TransformersReplica(replica.RolloutReplica):  # type: ignore[misc,unused-ignore]
    """One server process, on the node of the worker that sends it the weights."""

    async def launch_servers(self) -> None:
        node, gpu = await self.workers[0].__ray_call__.remote(_node_and_gpu)
        server = (
            ray.remote(ReplicaServer)
            .options(
                name=_server_name(self.replica_rank),
                num_cpus=0,
                max_concurrency=self.max_concurrency,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False),
                runtime_env={"env_vars": {"CUDA_VISIBLE_DEVICES": gpu}},
            )
            .remote(
                self.model_config.path,
                max_length=self.config.max_model_len or self.config.prompt_length + self.config.response_length,
                rows=self.config.max_num_seqs,
                seed=self.config.seed + self.replica_rank,
                dtype=self.config.dtype,
            )
        )
        await server.wake_up.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = _server_name(self.replica_rank)


class WeightSender(base.BaseRollout):  # type: ignore[misc,unused-ignore]
    """The worker's end: every worker has its own replica, and sends it all weights."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int | None = None) -> None:
        super().__init__(config, model_config, device_mesh)
        # A worker that trains has the replica of its own rank; one that only forwards weights is given its rank.
        self.replica_rank = int(os.environ["RANK"]) if replica_rank is None else replica_rank

    async def resume(self, tags: list[str]) -> None:
        return None

    async def release(self) -> None:
        return None

    async def update_weights(
        self, weights: Iterable[Named] | AsyncIterable[Named], wire_format: str = "named_tensors", **others: Any
    ) -> None:
        """Gather the weights, in which all ranks take part, and send them to the replica."""
        named = {name: tensor.detach().cpu() async for name, tensor in ensure_async_iterator(weights)}
        server = ray.get_actor(_server_name(self.replica_rank))
        await server.load_weights.remote(named, others.get("global_steps"))


def _server_name(rank: int) -> str:
    return f"rubricem-engine-{rank}"


def _node_and_gpu(_: object) -> tuple[str, str]:
    """The node of a worker, and the index of its GPU; "" without one."""
    context = ray.get_runtime_context()
    gpus = context.get_accelerator_ids().get("GPU", [])
    return context.get_node_id(), ",".join(gpus) if torch.cuda.is_available() else ""
