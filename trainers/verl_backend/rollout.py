"""Runs the episodes of one rollout worker: references before the question, our episode over the engine, then credit."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rubricem_agent.build.tools import OpenTools, open_tools
from rubricem_agent.policy.base import Sampling
from rubricem_agent.policy.local import load_tokenizer
from rubricem_agent.prompting import agent_prompt
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.run import Attempt, Setting, run_episode
from rubricem_env.domain.errors import ModelError, RubricEMError, boundary
from rubricem_env.domain.trajectory import ToolCall, ToolResult, ToolStatus
from rubricem_env.env.episode import Episode
from rubricem_env.llm.limits import LimiterOf, own_limiter
from rubricem_env.tools.base import LocalToolbox, Tool, Toolbox
from rubricem_env.tools.spec import GOOGLE_SEARCH, SNIPPET_SEARCH

from .engine_policy import EnginePolicy
from .rows import ScheduledQuery, episode_row
from .settings import VerlSettings

AWAY = 8
"""Failures of a search engine in a row, over all episodes of a process, after which it counts as away."""


class PatientSearch:
    """A search engine whose calls wait while it is away: no policy should learn to answer without it.

    `wait` returns at the next probe, or False where the patience is exhausted; `resume` says that the engine is back.
    """

    def __init__(self, tool: Tool, wait: Callable[[], Awaitable[bool]], resume: Callable[[], Awaitable[None]]) -> None:
        self._tool, self._wait, self._resume = tool, wait, resume
        self.spec = tool.spec
        self._failures = 0
        self.failure = ""
        """Why the episodes of now are lost: the patience is exhausted."""

    async def call(self, call: ToolCall) -> ToolResult:
        """The engine's result; what fails until the engine is away is the policy's to read."""
        while True:
            result = await self._tool.call(call)
            if result.status not in (ToolStatus.ERROR, ToolStatus.TIMEOUT):
                if self._failures >= AWAY:
                    await self._resume()
                self._failures, self.failure = 0, ""
                return result
            self._failures += 1
            if self._failures < AWAY:
                return result
            if not await self._wait():
                self.failure = f"{self.spec.name} was away for longer than rubricem.outage.patience: {result.message}"
                return result


class EpisodeRunner:
    """One for each worker process. Its tools are opened at the first episode and stay open as long as the process lives."""

    def __init__(
        self,
        settings: VerlSettings,
        *,
        model: Path,
        max_length: int,
        limiter_of: LimiterOf = own_limiter,
        service: Any = None,
    ) -> None:
        """`service` is Ray's handle of the judge service, which knows of outages; without it none is waited for."""
        self._settings = settings
        self._limiter_of = limiter_of
        self._service = service
        self._searches: list[PatientSearch] = []
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
                prompt = agent_prompt(toolbox.names, style=self._settings.style, system=self._settings.system)
                plain = opening = prompt.opening(scheduled.query)
                if self._settings.references.is_guided(index, scheduled.step):
                    opening = prompt.opening(scheduled.query, references=await references(scheduled))
                sampling = Sampling(temperature=temperature, max_turn_tokens=self._settings.max_turn_tokens)
                rollout = await run_episode(
                    Attempt(scheduled.query, opening, prompt.hash),
                    Setting(policy, toolbox, self._settings.limits, sampling),
                )
                lost = next((search.failure for search in self._searches if search.failure), "")
                if lost:
                    rollout = rollout.model_copy(update={"failure": lost})
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
                self._toolbox = self._patient(opened)
            return self._toolbox

    def _patient(self, opened: OpenTools) -> Toolbox:
        """The tools, of which the search engines wait for their return."""
        toolbox, service = opened.toolbox, self._service
        if service is None or not isinstance(toolbox, LocalToolbox):
            return toolbox
        tools = dict[str, Tool](toolbox.tools)
        for name in (GOOGLE_SEARCH, SNIPPET_SEARCH):
            if name in tools:
                search = PatientSearch(tools[name], service.wait_for_search.remote, service.search_is_back.remote)
                tools[name] = search
                self._searches.append(search)
        return LocalToolbox(*tools.values(), redactor=opened.redactor)
