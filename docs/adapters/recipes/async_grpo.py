"""TRL's AsyncGRPO: AsyncGRPOTrainer(..., rollout_worker=ResearchWorker(play_group, scorer, queries)). Needs CUDA.

For TRL 1.16: in 1.18 AsyncGRPO is a stable trainer, and these modules and the argument are gone.
A row has one advantage, so a rollout is pushed once for each stage that it has, with the mask kept to that stage.
"""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import cycle
from multiprocessing.queues import Queue as MPQueue
from typing import Any

import numpy as np
from trl.experimental.async_grpo.async_grpo_trainer import RolloutWorkerProtocol
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from rubricem_agent.adapters import completion_of, group_advantages, tokens_of
from rubricem_agent.rollout import Rollout
from rubricem_env.domain import STAGES, Query
from rubricem_env.env import Scorer

PlayGroup = Callable[[Query], Awaitable[Sequence[Rollout]]]
"""Plays a whole group with a `vllm:` policy on the trainer's vLLM server."""


class ResearchWorker:
    """Plays and judges groups in a thread of its own, until it is stopped."""

    def __init__(self, play_group: PlayGroup, scorer: Scorer, queries: Sequence[Query]) -> None:
        self.rollout_buffer: queue.Queue[Any] | MPQueue[Any] = queue.Queue(maxsize=256)
        self.metrics_queue: queue.Queue[Any] | MPQueue[Any] = queue.Queue()
        self._play_group = play_group
        self._scorer = scorer
        self._queries = queries
        self._version = 0
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped.set()

    def update_model_version(self, model_version: int) -> None:
        self._version = model_version

    def check_health(self, stale_after_s: float) -> None:
        if not self._thread.is_alive() and not self._is_stopped.is_set():
            raise RuntimeError("the thread that plays has ended; its error is on stderr.")

    async def _work(self) -> None:
        for group_id, query in enumerate(cycle(self._queries)):
            version = self._version
            attempts = await self._play_group(query)
            judgements = await self._scorer.score([attempt.trajectory for attempt in attempts])
            for attempt, advantages in zip(attempts, group_advantages(attempts, judgements), strict=True):
                for sample in stage_samples(attempt, advantages, model_version=version, group_id=group_id):
                    await asyncio.to_thread(self.rollout_buffer.put, sample)
            if self._is_stopped.is_set():
                return


def stage_samples(
    attempt: Rollout, advantages: Sequence[float], *, model_version: int, group_id: int
) -> Iterator[RolloutSample]:
    """A row for each stage that has tokens."""
    tokens, (_, completion_stages, _) = tokens_of(attempt), completion_of(attempt)
    stage_ids = np.array([-1] * tokens.prompt_length + completion_stages)
    for stage in STAGES:
        mask = stage_ids == stage.position
        if mask.any():
            yield RolloutSample(
                prompt=[{"role": "user", "content": attempt.trajectory.question}],
                completion=[{"role": "assistant", "content": attempt.trajectory.policy_text}],
                input_ids=np.array(tokens.ids, dtype=np.int64),
                completion_mask=mask.astype(np.int64),
                old_log_probs=np.array(tokens.logprobs, dtype=np.float32),
                advantage=advantages[int(mask.argmax()) - tokens.prompt_length],
                model_version=model_version,
                group_id=group_id,
                metrics={},
            )


def worker(play_group: PlayGroup, scorer: Scorer, queries: Sequence[Query]) -> RolloutWorkerProtocol:
    """What the trainer's `rollout_worker` takes."""
    return ResearchWorker(play_group, scorer, queries)
