"""Plays the episodes of one rollout worker: lessons before the question, our episode over the engine, marks after it."""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.build.tools import open_tools
from rubricem_agent.policy.base import Sampling
from rubricem_agent.policy.local import load_tokenizer
from rubricem_agent.prompting import AgentPrompt, agent_prompt
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.run import Attempt, Setting, run_episode
from rubricem_env.domain.errors import ModelError, RubricEMError, boundary
from rubricem_env.env.episode import Episode
from rubricem_env.tools.base import Toolbox
from trainers.verl_backend.engine_policy import EnginePolicy, TokenClient
from trainers.verl_backend.rows import DeskCalls, EpisodeRow, Handed, Meeting, episode_row
from trainers.verl_backend.settings import VerlSettings


class RolloutSlot(NamedTuple):
    """Which rollout of which group is played, and the step that veRL asked for it in."""

    group: str
    number: int
    step: int


class Player:
    """One for a worker process. Its tools are opened at the first episode and stay open as long as the process lives."""

    def __init__(self, settings: VerlSettings, *, model: Path, max_length: int) -> None:
        self._settings = settings
        self._tokenizer = load_tokenizer(model)
        self._max_length = max_length
        self._stack = AsyncExitStack()
        self._opening_tools = asyncio.Lock()
        self._toolbox: Toolbox | None = None

    async def play(
        self, meeting: Meeting, place: RolloutSlot, *, client: TokenClient, desk: DeskCalls, temperature: float
    ) -> EpisodeRow:
        """One episode, from its lessons to its marks. Whatever fails on the way, the group gets its rollout."""
        policy = EnginePolicy(client, self._tokenizer, max_length=self._max_length)
        sampling = Sampling(temperature=temperature, max_turn_tokens=self._settings.max_turn_tokens)
        try:
            with boundary(ModelError, "play an episode"):
                rollout = await self._roll_out(meeting, policy, desk=desk, sampling=sampling)
        except RubricEMError as failure:
            rollout = _lost(meeting, failure)
        marks = await desk.hand_in(Handed(place.group, place.number, meeting, rollout))
        return episode_row(
            rollout,
            marks,
            tokenizer=self._tokenizer,
            versions=policy.versions(otherwise=place.step),
            encounter=meeting.encounter.value,
        )

    async def _roll_out(
        self, meeting: Meeting, policy: EnginePolicy, *, desk: DeskCalls, sampling: Sampling
    ) -> Rollout:
        toolbox = await self._tools()
        prompt = self._prompt(toolbox)
        references = await desk.references(meeting)
        attempt = Attempt(meeting.query, prompt.opening(meeting.query, references=references), prompt.hash)
        return await run_episode(attempt, Setting(policy, toolbox, self._settings.limits, sampling))

    async def _tools(self) -> Toolbox:
        async with self._opening_tools:
            if self._toolbox is None:
                opened = await self._stack.enter_async_context(open_tools(self._settings.tools, os.environ))
                self._toolbox = opened.toolbox
            return self._toolbox

    def _prompt(self, toolbox: Toolbox) -> AgentPrompt:
        return AgentPrompt(self._settings.system, "") if self._settings.system else agent_prompt(toolbox.names)


def _lost(meeting: Meeting, failure: RubricEMError) -> Rollout:
    """A rollout of which nothing is left but the reason."""
    episode = Episode(meeting.query)
    episode.abandon()
    return Rollout(trajectory=episode.trajectory, policy=EnginePolicy.name, failure=str(failure))
