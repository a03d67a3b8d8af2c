"""The desk as a Ray actor: one for a run, on the trainer's node, where the checkpoints are written.

veRL's agent loop for our episodes: takes a row of the stream, gives back tokens, mask and what credit needs.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import ray  # type: ignore[import-not-found,unused-ignore]
from omegaconf import OmegaConf  # type: ignore[import-not-found,unused-ignore]
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # type: ignore[import-not-found,unused-ignore]
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput  # type: ignore[import-not-found,unused-ignore]

from rubricem_agent.config import WITH_WEIGHTS
from rubricem_agent.learn.curriculum import Encounter
from rubricem_env.domain.trajectory import Query
from trainers.verl_backend.judge_service import JudgeService, make_desk_parts
from trainers.verl_backend.rollout import Player, RolloutSlot
from trainers.verl_backend.rows import OURS, Handed, Marks, Meeting
from trainers.verl_backend.settings import SECTION, VerlSettings, read_section, share_of

NAME = "rubricem-desk"
_THREADS = 8
"""For the bank's embedder."""
_MAX_WAITING = 100_000
"""Calls at once: every rollout of a step waits for its group."""


class DeskActor(JudgeService):
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


LOOPS_FILE = Path(__file__).with_name("agent_loop.yaml")
"""Where veRL reads the name of this loop."""


class RubricEMAgentLoop(AgentLoopBase):  # type: ignore[misc,unused-ignore]
    """One for each rollout, as veRL has it; what is costly is shared by all of a process."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Play one episode and wait for its marks."""
        meeting = Meeting(
            Query.model_validate_json(row["query"]), int(row["lesson_step"]), Encounter(str(row["encounter"]))
        )
        played = await _player(_described(self.config)).play(
            meeting,
            RolloutSlot(str(row["uid"]), int(row["session_id"]), int(row["global_steps"])),
            client=self.server_manager,
            desk=find_desk(),
            temperature=float(sampling_params["temperature"]),
        )
        marks = played.extra_fields[OURS].marks
        return AgentLoopOutput(**played._asdict(), reward_score=marks.scores[-1], metrics=AgentLoopMetrics())


def _described(config: Any) -> str:
    """What a player is made from, as text, so that equal configs share one."""
    rollout = config.actor_rollout_ref.rollout
    section = OmegaConf.to_container(config[SECTION], resolve=True)
    length = rollout.max_model_len or rollout.prompt_length + rollout.response_length
    told = {"section": section, "model": config.actor_rollout_ref.model.path, "max_length": length}
    return json.dumps({**told, "workers": rollout.agent.num_workers})


@cache
def _player(described: str) -> Player:
    parts = json.loads(described)
    settings = read_section(parts["section"])
    share = settings.model_copy(update={"tools": share_of(settings.tools, parts["workers"])})
    return Player(share, model=Path(parts["model"]), max_length=parts["max_length"])
