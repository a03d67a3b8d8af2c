"""A sampling engine that needs no vLLM: the policy's own decoder on transformers, as a replica of veRL's.

For machines without vLLM, and for tests. It samples as `local:` policies do, stops and goes on around a change of
weights as veRL's vLLM servers do, and is chosen with `actor_rollout_ref.rollout.name=transformers`.
"""

import os
from collections.abc import AsyncIterable, Iterable
from typing import Any, TypeAlias

import ray  # type: ignore[import-not-found,unused-ignore]
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # type: ignore[import-not-found,unused-ignore]
from verl.checkpoint_engine.base import CheckpointEngineWorker  # type: ignore[import-not-found,unused-ignore]
from verl.single_controller.ray import RayClassWithInitArgs  # type: ignore[import-not-found,unused-ignore]
from verl.workers.rollout import base, replica  # type: ignore[import-not-found,unused-ignore]
from verl.workers.rollout.utils import ensure_async_iterator  # type: ignore[import-not-found,unused-ignore]

from trainers.verl_backend.cpu.server import ReplicaServer, ServerSettings

NAME = "transformers"
Named: TypeAlias = tuple[str, torch.Tensor]


def register_replica() -> None:
    """Make the engine known under its name in this process."""
    base._ROLLOUT_REGISTRY[(NAME, "async")] = f"{__name__}.WeightSender"
    replica.RolloutReplicaRegistry.register(NAME, lambda: TransformersReplica)


class TransformersReplica(replica.RolloutReplica):  # type: ignore[misc,unused-ignore]
    """One server process, beside the worker that it gets its weights from."""

    def get_ray_class_with_init_args(self) -> Any:
        return RayClassWithInitArgs(
            cls=ray.remote(PassingWorker),
            rollout_config=self.config,
            model_config=self.model_config,
            replica_rank=self.replica_rank,
        )

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


class PassingWorker(CheckpointEngineWorker):  # type: ignore[misc,unused-ignore]
    """Passes weights from a transport to the replica beside it, where those that train are elsewhere.

    veRL's own, of a class of its own because its process has to know the engine by name.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        register_replica()
        super().__init__(*arguments, **named)


class WeightSender(base.BaseRollout):  # type: ignore[misc,unused-ignore]
    """The worker's end: every worker has a replica of its own, and sends it the whole weights."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int | None = None) -> None:
        super().__init__(config, model_config, device_mesh)
        # A worker that trains has the replica of its own rank; one that only passes weights on is told which.
        self.replica_rank = int(os.environ["RANK"]) if replica_rank is None else replica_rank

    async def resume(self, tags: list[str]) -> None:
        return None

    async def release(self) -> None:
        return None

    async def update_weights(
        self, weights: Iterable[Named] | AsyncIterable[Named], wire_format: str = "named_tensors", **others: Any
    ) -> None:
        """Gather the weights, in which all ranks take part, and hand them to the replica."""
        named = {name: tensor.detach().cpu() async for name, tensor in ensure_async_iterator(weights)}
        server = ray.get_actor(_server_name(self.replica_rank))
        await server.load_weights.remote(named, others.get("global_steps"))


def _server_name(rank: int) -> str:
    return f"rubricem-engine-{rank}"


def _place_of(_: object) -> tuple[str, str]:
    """The node of a worker, and its GPU as CUDA counts; "" without one."""
    context = ray.get_runtime_context()
    gpus = context.get_accelerator_ids().get("GPU", [])
    return context.get_node_id(), ",".join(gpus) if torch.cuda.is_available() else ""
