"""What runs in Ray's processes beside trainer and engines: the judge service of a run, and veRL's agent loop."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import ray  # type: ignore[import-not-found,unused-ignore]
import torch
from omegaconf import OmegaConf  # type: ignore[import-not-found,unused-ignore]
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # type: ignore[import-not-found,unused-ignore]
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput  # type: ignore[import-not-found,unused-ignore]

from rubricem_agent.config.bank import WITH_WEIGHTS
from rubricem_env.domain.trajectory import Query
from rubricem_env.llm import export_traces

from .judge_service import JudgeService
from .rollout import EpisodeRunner
from .rows import ScheduledQuery
from .settings import SECTION, VerlSettings, read_section
from .verl_names import ENGINE
from .worker_tools import share_of

NAME = "rubricem-judge-service"
LOOPS_FILE = Path(__file__).with_name("agent_loop.yaml")
"""Where veRL reads the name of our agent loop."""
_THREADS = 8
"""For the bank's embedder."""
_MAX_CALLS = 100_000
"""Concurrent calls: every rollout of a step waits for its group."""


def start_judge_service(settings: VerlSettings, *, model: str, group_size: int) -> Any:
    """Start the run's judge service on the caller's node, where the checkpoints are written; returns its handle."""
    here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
    # Ray gives an actor without CPUs one thread, with which an embedder with weights would delay the steps.
    has_weights = settings.meta_policy and settings.bank.embedder in WITH_WEIGHTS
    variables = {"OMP_NUM_THREADS": str(min(_THREADS, os.cpu_count() or 1))} if has_weights else {}
    actor = ray.remote(JudgeService).options(
        name=NAME, num_cpus=0, max_concurrency=_MAX_CALLS, scheduling_strategy=here, runtime_env={"env_vars": variables}
    )
    return actor.remote(settings, model=Path(model), group_size=group_size)


class CreditedOutput(AgentLoopOutput):  # type: ignore[misc,unused-ignore]
    """An agent loop's output whose tokens have advantages already; they go where veRL keeps token scores."""

    token_advantages: list[float]

    def as_dict(self) -> dict[str, Any]:
        """The row of veRL's queue.

        `advantages` and `returns` are rewritten by veRL, except in a step without a signal.
        """
        row: dict[str, Any] = super().as_dict()
        advantages = torch.tensor(row.pop("token_advantages"), dtype=torch.float32)
        return row | {"rm_scores": advantages, "advantages": advantages, "returns": advantages}


class RubricEMAgentLoop(AgentLoopBase):  # type: ignore[misc,unused-ignore]
    """veRL's agent loop for our episodes: takes a row of the stream, returns tokens, mask and advantages.

    veRL makes one for each rollout; the episode runner is shared by all of a process.
    """

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """Run one episode and wait for its credit; an output for each window."""
        query = Query.model_validate_json(row["query"])
        rollout = self.config.actor_rollout_ref.rollout
        runner = _runner(
            json.dumps(OmegaConf.to_container(self.config[SECTION], resolve=True)),
            Path(self.config.actor_rollout_ref.model.path),
            rollout.max_model_len or rollout.prompt_length + rollout.response_length,
            rollout.agent.num_workers,
            rollout.name == ENGINE,
        )
        rows = await runner.run(
            ScheduledQuery(query, int(row["lesson_step"]), "new" if row["encounter"] == "new" else "repeat"),
            group=str(row["uid"]),
            index=int(row["session_id"]),
            step=int(row["global_steps"]),
            client=self.server_manager,
            temperature=float(sampling_params["temperature"]),
        )
        # With a reward veRL calls no reward worker.
        return [CreditedOutput(**fields, reward_score=0.0, metrics=AgentLoopMetrics()) for fields in rows]


@cache
def _runner(section: str, model: Path, length: int, workers: int, is_seeded: bool) -> EpisodeRunner:
    """The episode runner of this process, which is one of so many workers."""
    export_traces(os.environ)
    settings = read_section(json.loads(section))
    share = settings.model_copy(update={"tools": share_of(settings.tools, workers)})
    return EpisodeRunner(share, model=model, max_length=length, service=ray.get_actor(NAME), is_seeded=is_seeded)
