"""A sampling engine that needs no vLLM: the policy's own decoder on transformers, as a replica of veRL's.

For machines without vLLM, and for tests. It samples as `local:` policies do, stops and goes on around a change of
weights as veRL's vLLM servers do, and is chosen with `actor_rollout_ref.rollout.name=transformers`.

The process behind a replica: draws tokens for many requests at once, and lets the weights be changed in between.
"""

import asyncio
import os
from collections.abc import AsyncIterable, Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import ray  # type: ignore[import-not-found,unused-ignore]
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # type: ignore[import-not-found,unused-ignore]
from verl.checkpoint_engine.base import CheckpointEngineWorker  # type: ignore[import-not-found,unused-ignore]
from verl.single_controller.ray import RayClassWithInitArgs  # type: ignore[import-not-found,unused-ignore]
from verl.workers.rollout import base, replica  # type: ignore[import-not-found,unused-ignore]
from verl.workers.rollout.utils import ensure_async_iterator  # type: ignore[import-not-found,unused-ignore]

from rubricem_agent.policy.base import Silence, TurnEnd
from rubricem_agent.policy.local import Batcher, CacheRow, Job, common_prefix, load_model, load_tokenizer
from rubricem_agent.policy.qwen3 import Qwen3Decoder
from rubricem_agent.policy.tokens import TokenDraw, TokenTurn


class ServerSettings(NamedTuple):
    """What a server is started with."""

    model: str
    max_length: int
    rows: int
    """Requests that are drawn together; further ones wait."""
    seed: int
    dtype: str


class SampledReply(NamedTuple):
    """A reply, with the fields of veRL's `TokenOutput`; importing that one would double the time to start."""

    token_ids: list[int]
    log_probs: list[float]
    stop_reason: str
    """`completed` or `aborted`."""
    extra_fields: dict[str, Any]
    """`global_steps`: the weights that have drawn."""
    routed_experts: None = None
    num_preempted: None = None


class _Request(TokenTurn):
    """One request as it is drawn. It stops where a turn of ours is over, or when it is aborted."""

    is_aborted = False

    def take(self, draw: TokenDraw) -> TurnEnd | None:
        end = super().take(draw)
        return TurnEnd.LENGTH if end is None and self.is_aborted else end


class ReplicaServer:
    """A Ray actor. The names of its methods are those that veRL calls on every server."""

    def __init__(self, settings: ServerSettings) -> None:
        model = load_model(Path(settings.model))
        self._model = model.to(dtype=getattr(torch, settings.dtype))  # type: ignore[call-arg]
        self._tokenizer = load_tokenizer(Path(settings.model))
        self._max_length = min(settings.max_length, model.config.max_position_embeddings)
        self._batcher = Batcher(Qwen3Decoder(self._model, rows=settings.rows, max_length=self._max_length))
        self._free = [CacheRow(number) for number in range(settings.rows)]
        self._seats = asyncio.Semaphore(settings.rows)
        self._gate = asyncio.Event()
        self._turns_away = False
        self._running: set[_Request] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._numbers = count()
        self._seed = settings.seed
        self._version: int | None = None

    async def generate(
        self, prompt_ids: list[int], sampling_params: Mapping[str, Any], request_id: str, **_: object
    ) -> SampledReply:
        """Draw tokens after a prompt; what is held back by a change of weights waits."""
        room = self._max_length - len(prompt_ids)
        if room < 1:
            raise ValueError(f"a prompt of {len(prompt_ids)} tokens leaves no room in {self._max_length}.")
        async with self._seats:
            if self._turns_away and not self._gate.is_set():
                return SampledReply([], [], "aborted", {"global_steps": self._version})
            await self._gate.wait()
            request = _Request(self._tokenizer, Silence())
            self._running.add(request)
            self._idle.clear()
            try:
                await self._draw(prompt_ids, request, sampling_params, room=room)
            finally:
                self._running.discard(request)
                if not self._running:
                    self._idle.set()
        return SampledReply(
            token_ids=[draw.id for draw in request.draws],
            log_probs=[draw.logprob for draw in request.draws],
            stop_reason="aborted" if request.is_aborted and request.end is None else "completed",
            extra_fields={"global_steps": self._version},
        )

    async def load_weights(self, named: Mapping[str, torch.Tensor], version: int | None) -> None:
        """Put other weights in place, between two draws; what was cached under the old ones is forgotten."""
        is_open = self._gate.is_set()
        self._gate.clear()
        await self._idle.wait()
        tied = {"lm_head.weight"} if self._model.config.tie_word_embeddings else set()
        missing = set(self._model.state_dict()) - set(named) - tied
        unknown = set(named) - set(self._model.state_dict())
        if missing or unknown:
            raise ValueError(f"the trainer sent other weights than the engine has: {sorted(missing | unknown)[:3]}.")
        with torch.no_grad():
            for name, parameter in self._model.state_dict().items():
                if name in named:
                    parameter.copy_(named[name])
        self._version = version
        await self.clear_kv_cache()
        if is_open:
            self._gate.set()

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        """Stop every request where it is, and until `resume_generation` hold back new ones, or turn them away."""
        self._turns_away = reject_request
        self._gate.clear()
        for request in self._running:
            request.is_aborted = True
        await self._idle.wait()

    async def resume_generation(self) -> None:
        self._turns_away = False
        self._gate.set()

    async def wake_up(self) -> None:
        self._gate.set()

    async def sleep(self) -> None:
        """Wait for what is running. Nothing is given back, since the weights stay in place."""
        await self._idle.wait()

    async def clear_kv_cache(self) -> None:
        for row in self._free:
            row.cached.clear()

    async def release_kv_cache(self) -> None:
        return None

    async def resume_kv_cache(self) -> None:
        return None

    async def _draw(self, ids: list[int], request: _Request, params: Mapping[str, Any], *, room: int) -> None:
        row = max(self._free, key=lambda free: common_prefix(free.cached, ids))
        self._free.remove(row)
        wanted = params.get("max_tokens", room)
        try:
            job = Job(
                row,
                ids,
                turn=request,
                max_tokens=max(1, min(wanted, room)),
                temperature=params.get("temperature", 1.0),
                rng=np.random.default_rng([self._seed, next(self._numbers)]),
            )
            await self._batcher.run(job)
            request.close()
        finally:
            self._free.append(row)


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
