"""A sampling engine that needs no vLLM: the policy's own decoder on transformers, as a replica of veRL's.

For machines without vLLM, and for tests. It samples as `local:` policies do, stops and goes on around a change of
weights as veRL's vLLM servers do, and is chosen with `actor_rollout_ref.rollout.name=transformers`.
"""

import os
from collections.abc import Iterable
from typing import Any

import ray  # type: ignore[import-not-found,unused-ignore]
import torch
from ray.util.scheduling_strategies import (  # type: ignore[import-not-found,unused-ignore]
    NodeAffinitySchedulingStrategy,
)
from verl.workers.rollout import base, replica  # type: ignore[import-not-found,unused-ignore]

from trainers.verl_backend.replica_server import ReplicaServer, ServerSettings

NAME = "transformers"


def register_replica() -> None:
    """Make the engine known under its name in this process."""
    base._ROLLOUT_REGISTRY[(NAME, "async")] = f"{__name__}.WeightSender"
    replica.RolloutReplicaRegistry.register(NAME, lambda: TransformersReplica)


class TransformersReplica(replica.RolloutReplica):  # type: ignore[misc,unused-ignore]
    """One server process, beside the worker that it gets its weights from."""

    async def launch_servers(self) -> None:
        node, gpu = await self.workers[0].__ray_call__.remote(_place_of)
        settings = ServerSettings(
            model=self.model_config.path,
            max_length=self.config.max_model_len or self.config.prompt_length + self.config.response_length,
            rows=self.config.max_num_seqs,
            seed=self.config.seed + self.replica_rank,
            dtype=self.config.dtype,
        )
        server = (
            ray.remote(ReplicaServer)
            .options(
                name=_server_name(self.replica_rank),
                num_cpus=0,
                max_concurrency=self.max_concurrency,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False),
                runtime_env={"env_vars": {"CUDA_VISIBLE_DEVICES": gpu}},
            )
            .remote(settings)
        )
        await server.wake_up.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = _server_name(self.replica_rank)


class WeightSender(base.BaseRollout):  # type: ignore[misc,unused-ignore]
    """The worker's end: every rank of ours has a replica of its own, and sends it the whole weights."""

    async def resume(self, tags: list[str]) -> None:
        return None

    async def release(self) -> None:
        return None

    async def update_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], wire_format: str = "named_tensors", **others: Any
    ) -> None:
        """Gather the weights, in which all ranks take part, and hand them to the replica."""
        named = {name: tensor.detach().cpu() for name, tensor in weights}
        server = ray.get_actor(_server_name(int(os.environ["RANK"])))
        await server.load_weights.remote(named, others.get("global_steps"))


def _server_name(rank: int) -> str:
    return f"rubricem-engine-{rank}"


def _place_of(_: object) -> tuple[str, str]:
    """The node of a worker, and its GPU as CUDA counts; "" without one."""
    context = ray.get_runtime_context()
    gpus = context.get_accelerator_ids().get("GPU", [])
    return context.get_node_id(), ",".join(gpus) if torch.cuda.is_available() else ""
