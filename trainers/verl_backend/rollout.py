"""Runs the episodes of one rollout worker: references before the question, our episode over the engine, then credit."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rubricem_agent.build.tools import open_tools
from rubricem_agent.policy.base import Sampling
from rubricem_agent.policy.local import load_tokenizer
from rubricem_agent.prompting import AgentPrompt, agent_prompt
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.run import Attempt, Setting, run_episode
from rubricem_env.domain.errors import ModelError, RubricEMError, boundary
from rubricem_env.env.episode import Episode
from rubricem_env.llm.shared_limits import LimiterOf, own_limiter
from rubricem_env.tools.base import Toolbox

from .engine_policy import EnginePolicy
from .rows import ScheduledQuery, episode_row
from .settings import VerlSettings


class EpisodeRunner:
    """One for each worker process. Its tools are opened at the first episode and stay open as long as the process lives."""

    def __init__(
        self, settings: VerlSettings, *, model: Path, max_length: int, limiter_of: LimiterOf = own_limiter
    ) -> None:
        self._settings = settings
        self._limiter_of = limiter_of
        self._tokenizer = load_tokenizer(model)
        self._max_length = max_length
        self._stack = AsyncExitStack()
        self._opening_tools = asyncio.Lock()
        self._toolbox: Toolbox | None = None

    async def run(
        self,
        scheduled: ScheduledQuery,
        *,
        group: str,
        index: int,
        step: int,
        client: Any,
        references: Callable[[ScheduledQuery], Awaitable[str]],
        submit: Callable[..., Awaitable[npt.NDArray[np.floating] | None]],
        temperature: float,
    ) -> dict[str, Any]:
        """Run one episode and wait for its token advantages. Whatever fails on the way, the group gets its rollout.

        `references` and `submit` are the judge service's methods, called here or through Ray. `step` is the one in
        which veRL requested the episode.
        """
        policy = EnginePolicy(client, self._tokenizer, max_length=self._max_length)
        trained_opening: list[int] | None = None
        try:
            with boundary(ModelError, "run an episode"):
                toolbox = await self._tools()
                system = self._settings.system
                prompt = AgentPrompt(system, "") if system else agent_prompt(toolbox.names)
                plain = opening = prompt.opening(scheduled.query)
                if self._settings.references.is_guided(index, scheduled.step):
                    opening = prompt.opening(scheduled.query, references=await references(scheduled))
                sampling = Sampling(temperature=temperature, max_turn_tokens=self._settings.max_turn_tokens)
                rollout = await run_episode(
                    Attempt(scheduled.query, opening, prompt.hash),
                    Setting(policy, toolbox, self._settings.limits, sampling),
                )
                if self._settings.references.internalise:
                    trained_opening = self._tokenizer.encode_opening(plain)
        except RubricEMError as failure:
            episode = Episode(scheduled.query)
            episode.abandon()
            rollout = Rollout(trajectory=episode.trajectory, policy=EnginePolicy.name, failure=str(failure))
        advantages = await submit(scheduled, rollout, group=group, index=index)
        versions = policy.versions(default=step)
        return episode_row(
            rollout, advantages, group=group, tokenizer=self._tokenizer, versions=versions, opening=trained_opening
        )

    async def _tools(self) -> Toolbox:
        async with self._opening_tools:
            if self._toolbox is None:
                tools = open_tools(self._settings.tools, os.environ, limiter_of=self._limiter_of)
                opened = await self._stack.enter_async_context(tools)
                self._toolbox = opened.toolbox
            return self._toolbox
