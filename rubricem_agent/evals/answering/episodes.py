"""A policy that answers in episodes with the search tools: the agent as it is evaluated."""

import hashlib
from typing import NamedTuple, Protocol

from rubricem_agent.evals.run.answering import Answered, Task
from rubricem_agent.policy.base import Opening
from rubricem_agent.prompting.agent_prompt import AgentPrompt
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.run import Attempt, Setting, run_episode
from rubricem_env.domain.query import Query
from rubricem_env.llm.usage import Usage

_SEEDS = 2**31
"""Servers take seeds of 31 bits."""


class References(Protocol):
    """What a memory puts before a question."""

    async def before(self, question: str, *, attempts: tuple[Rollout, ...]) -> str:
        """A reference block, or nothing; `attempts` are the earlier ones at this question."""
        ...


class NoReferences:
    """The default of the paper's main tables: no memory."""

    async def before(self, question: str, *, attempts: tuple[Rollout, ...]) -> str:
        return ""


class Habits(NamedTuple):
    """How the agent goes about a question."""

    prompt: AgentPrompt
    references: References = NoReferences()
    attempts: int = 1
    """Episodes in a row; the last one's answer counts, and the usage of all."""
    seed: int = 0


class EpisodeAnswerer:
    """One episode for each attempt, by `run_episode`."""

    def __init__(self, setting: Setting, habits: Habits) -> None:
        self._setting = setting
        self._habits = habits

    @property
    def name(self) -> str:
        return self._setting.policy.name

    async def answer(self, task: Task) -> Answered:
        """Attempt the task as often as the habits say; a failure ends it."""
        query = Query(question=task.example.prompt_text, answer_format=task.answer_format)
        done: tuple[Rollout, ...] = ()
        for number in range(self._habits.attempts):
            references = await self._habits.references.before(query.question, attempts=done)
            opening = with_guidance(self._habits.prompt.opening(query, references=references), task.guidance)
            seed = seed_of(self._habits.seed, task, attempt=number)
            attempt = Attempt(query, opening, self._habits.prompt.hash, seed)
            done = (*done, await run_episode(attempt, self._setting))
            if done[-1].failure:
                break
        usage = sum((rollout.usage for rollout in done), Usage())
        return Answered(done[-1].trajectory, failure=done[-1].failure, usage=usage, model=self.name)

    async def aclose(self) -> None:
        await self._setting.policy.aclose()


def with_guidance(opening: Opening, guidance: str) -> Opening:
    """The prompt suffix, on a line of its own after the form of the answer."""
    return opening._replace(user=f"{opening.user}\n{guidance}") if guidance else opening


def seed_of(seed: int, task: Task, *, attempt: int) -> int:
    """The same for the same example, epoch and attempt, whatever runs beside it."""
    name = f"{seed}/{task.example.id}/{task.epoch}/{attempt}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % _SEEDS
