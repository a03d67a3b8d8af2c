"""The process behind a replica: samples for many requests at once, and loads other weights in between."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from rubricem_agent.policy.base import Listener, TurnEnd
from rubricem_agent.policy.causal_lm import max_positions, open_decoder
from rubricem_agent.policy.drafts import common_prefix
from rubricem_agent.policy.local import Batcher, CacheRow, Job, RandomNumbers, load_model, load_tokenizer
from rubricem_agent.policy.tokens import TokenTurn


class _Request(TokenTurn):
    """One running request. It stops at the end of a turn of ours, or when it is aborted."""

    is_aborted = False

    def take(self, token_id: int, logprob: float) -> TurnEnd | None:
        end = super().take(token_id, logprob)
        return "length" if end is None and self.is_aborted else end


class ReplicaServer:
    """A Ray actor, whose methods are those that veRL calls on every server.

    `rows` requests run at once; others wait.
    """

    def __init__(self, path: str, *, max_length: int, rows: int, seed: int, dtype: str) -> None:
        model = load_model(Path(path))
        self._model = model.to(dtype=getattr(torch, dtype))  # type: ignore[call-arg]
        self._tokenizer = load_tokenizer(Path(path))
        self._max_length = max_positions(model.config, max_length)
        self._batcher = Batcher(open_decoder(self._model, rows=rows, max_length=self._max_length))
        self._free = [CacheRow(number) for number in range(rows)]
        self._slots = asyncio.Semaphore(rows)
        self._gate = asyncio.Event()
        self._rejects = False
        self._running: set[_Request] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._numbers = count()
        self._seed = seed
        self._version: int | None = None

    async def generate(
        self, prompt_ids: list[int], sampling_params: Mapping[str, Any], request_id: str, **_: object
    ) -> SimpleNamespace:
        """Sample tokens after a prompt. While the weights are updated, requests wait or are rejected."""
        room = self._max_length - len(prompt_ids)
        if room < 1:
            raise ValueError(f"a prompt of {len(prompt_ids)} tokens leaves no room in {self._max_length}.")
        async with self._slots:
            if self._rejects and not self._gate.is_set():
                return self._reply((), (), is_aborted=True)
            await self._gate.wait()
            request = _Request(self._tokenizer, Listener())
            self._running.add(request)
            self._idle.clear()
            try:
                await self._draw(prompt_ids, request, sampling_params, room=room)
            finally:
                self._running.discard(request)
                if not self._running:
                    self._idle.set()
        return self._reply(request.ids, request.logprobs, is_aborted=request.is_aborted and request.end is None)

    def _reply(self, ids: Sequence[int], logprobs: Sequence[float], *, is_aborted: bool) -> SimpleNamespace:
        """The fields of veRL's `TokenOutput`, whose import would double the time to start."""
        return SimpleNamespace(
            token_ids=list(ids),
            log_probs=list(logprobs),
            stop_reason="aborted" if is_aborted else "completed",
            extra_fields={"global_steps": self._version},
            routed_experts=None,
            num_preempted=None,
        )

    async def load_weights(self, named: Mapping[str, torch.Tensor], version: int | None) -> None:
        """Replace the weights between two tokens, and clear what was cached under the old ones."""
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
        """Stop every request where it is. Until `resume_generation`, new ones wait, or are rejected."""
        self._rejects = reject_request
        self._gate.clear()
        for request in self._running:
            request.is_aborted = True
        await self._idle.wait()

    async def resume_generation(self) -> None:
        self._rejects = False
        self._gate.set()

    async def wake_up(self) -> None:
        self._gate.set()

    async def sleep(self) -> None:
        """Wait for the running requests. No memory is freed, since the weights stay in place."""
        await self._idle.wait()

    async def clear_kv_cache(self) -> None:
        for row in self._free:
            row.cached.clear()

    async def release_kv_cache(self) -> None:
        return None

    resume_kv_cache = release_kv_cache

    async def _draw(self, ids: list[int], request: _Request, params: Mapping[str, Any], *, room: int) -> None:
        row = max(self._free, key=lambda free: common_prefix(free.cached, ids))
        self._free.remove(row)
        limit = params.get("max_tokens", room)
        try:
            job = Job(
                row,
                ids,
                turn=request,
                max_tokens=max(1, min(limit, room)),
                temperature=params.get("temperature", 1.0),
                numbers=RandomNumbers(np.random.default_rng(params.get("seed", [self._seed, next(self._numbers)]))),
            )
            await self._batcher.run(job)
            request.close()
        finally:
            self._free.append(row)
