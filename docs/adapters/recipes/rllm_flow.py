"""rLLM: a flow that plays a whole group, since an advantage needs the siblings.

Train with one rollout a task, and rllm.algorithm.use_precomputed_advantage=true.

The policy asks the model server itself and not rLLM's gateway: the gateway's traces would replace the steps, and with
them the advantages. A list of another length than `response_ids` silently becomes zeros, so both are cut alike here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rllm.types import AgentConfig, AgentFlow, Episode, Step, Trajectory

from rubricem_agent.adapters import group_advantages, policy_runs, tokens_of
from rubricem_agent.rollout import Rollout
from rubricem_env.domain import STAGES, Judgement, Query
from rubricem_env.env import Scorer

PlayGroup = Callable[[Query], Awaitable[Sequence[Rollout]]]
"""Plays the attempts at one question with a `vllm:` policy."""


class ResearchFlow:
    """Plays, judges and credits a group; every attempt is a trajectory of the episode."""

    def __init__(self, play_group: PlayGroup, scorer: Scorer) -> None:
        self._play_group = play_group
        self._scorer = scorer

    def run(self, task: Any, config: AgentConfig) -> Episode:
        return asyncio.run(self.arun(task, config))

    async def arun(self, task: Any, config: AgentConfig) -> Episode:
        attempts = await self._play_group(Query(question=task.instruction))
        judgements = await self._scorer.score([attempt.trajectory for attempt in attempts])
        advantages = group_advantages(attempts, judgements)
        rows = zip(attempts, judgements, advantages, strict=True)
        return Episode(task=task, trajectories=[trajectory_of(*row) for row in rows])


def trajectory_of(attempt: Rollout, judgement: Judgement, advantages: Sequence[float]) -> Trajectory:
    """One step for each turn: what the policy read as its prompt, what it wrote as its response."""
    tokens = tokens_of(attempt)
    after = tokens.prompt_length
    steps = [
        Step(
            prompt_ids=list(tokens.ids[:start]),
            response_ids=list(tokens.ids[start:end]),
            logprobs=list(tokens.logprobs[start:end]),
            advantage=list(advantages[start - after : end - after]),
        )
        for start, end in policy_runs(tokens.stage_ids)
    ]
    scores = {stage.value: judgement.score(stage) or 0.0 for stage in STAGES}
    return Trajectory(name="research", steps=steps, reward=sum(scores.values()), signals=scores)


def flow(play_group: PlayGroup, scorer: Scorer) -> AgentFlow:
    """What rLLM's trainer takes as its agent flow."""
    return ResearchFlow(play_group, scorer)
