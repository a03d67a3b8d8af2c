"""The desk as a Ray actor: one for a run, on the trainer's node, where the checkpoints are written."""

import os
from pathlib import Path
from typing import Any

import ray  # type: ignore[import-not-found,unused-ignore]
from ray.util.scheduling_strategies import (  # type: ignore[import-not-found,unused-ignore]
    NodeAffinitySchedulingStrategy,
)

from rubricem_agent.config.memory import WITH_WEIGHTS
from trainers.verl_backend.desk import Desk
from trainers.verl_backend.desk_parts import make_desk_parts
from trainers.verl_backend.desk_types import Handed, Marks, Meeting
from trainers.verl_backend.settings import VerlSettings

NAME = "rubricem-desk"
_THREADS = 8
"""For the bank's embedder."""
_MAX_WAITING = 100_000
"""Calls at once: every rollout of a step waits for its group."""


class DeskActor(Desk):
    """Made in its own process, since what it works with cannot travel."""

    def __init__(self, settings: VerlSettings, model: str, group_size: int) -> None:
        super().__init__(make_desk_parts(settings, model=Path(model), group_size=group_size))


class RemoteDesk:
    """The desk as an episode in another process sees it."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def references(self, meeting: Meeting) -> str:
        block: str = await self._actor.references.remote(meeting)
        return block

    async def hand_in(self, handed: Handed) -> Marks:
        marks: Marks = await self._actor.hand_in.remote(handed)
        return marks


def start_desk(settings: VerlSettings, *, model: str, group_size: int) -> Any:
    """Start the run's desk beside the caller; returns its handle."""
    here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(DeskActor).options(
        name=NAME,
        num_cpus=0,
        max_concurrency=_MAX_WAITING,
        scheduling_strategy=here,
        runtime_env={"env_vars": _variables(settings)},
    )
    return actor.remote(settings, model, group_size)


def _variables(settings: VerlSettings) -> dict[str, str]:
    """Ray gives an actor without CPUs one thread, and an embedder with weights would hold up a step with it."""
    is_model = settings.meta_policy and settings.bank.embedder in WITH_WEIGHTS
    return {"OMP_NUM_THREADS": str(min(_THREADS, os.cpu_count() or 1))} if is_model else {}


def find_desk() -> RemoteDesk:
    """The run's desk, from any process of the run."""
    return RemoteDesk(ray.get_actor(NAME))
