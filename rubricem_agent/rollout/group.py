"""Many episodes at once: n attempts at each of m questions, so many at a time, in an order that does not matter."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import numpy as np

from rubricem_agent.policy.base import Opening
from rubricem_agent.rollout.journal import Place, RolloutJournal
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.run import Attempt, Setting, run_episode
from rubricem_env.domain.query import Query
from rubricem_env.judge.together import run_together

OpenQuery = Callable[[Query], Awaitable[tuple[Opening, str]]]
"""The opening for a question and the hash of the prompt it was made from; asked once for each attempt."""


class Progress(NamedTuple):
    """How far a run is."""

    done: int
    total: int
    failed: int
    latest: Rollout
    is_resumed: bool
    """The latest one was finished by an earlier run."""


class Plan(NamedTuple):
    """What to roll out."""

    queries: Sequence[Query]
    open_query: OpenQuery
    group_size: int = 8
    concurrency: int = 256
    seed: int = 0


class _Task(NamedTuple):
    place: Place
    query: Query


async def run_groups(
    plan: Plan,
    setting: Setting,
    *,
    journal: RolloutJournal | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> list[list[Rollout]]:
    """The rollouts of each question, in the order of the questions and of the attempts, whatever finished first.

    What an attempt draws depends on its place and the plan's seed alone. A failed episode is a rollout with a
    failure. A reached ceiling, or an interrupt, ends the run; what was finished stands in the journal.
    """
    tasks = [_Task(place, query) for query, places in _places(plan) for place in places]
    board = _Board(len(tasks), on_progress or (lambda progress: None))
    finished = dict(journal.finished) if journal is not None else {}
    slots = asyncio.Semaphore(plan.concurrency)

    async def play(task: _Task) -> Rollout:
        resumed = finished.get(task.place)
        if resumed is not None:
            return board.note(resumed, is_resumed=True)
        async with slots:
            rollout = await _play(task, plan, setting=setting)
        if journal is not None:
            journal.append(task.place, rollout)
        return board.note(rollout, is_resumed=False)

    try:
        rollouts = await run_together([play(task) for task in tasks])
    finally:
        if journal is not None:
            journal.sync()
    size = plan.group_size
    return [rollouts[start : start + size] for start in range(0, len(rollouts), size)]


async def _play(task: _Task, plan: Plan, *, setting: Setting) -> Rollout:
    opening, prompt_hash = await plan.open_query(task.query)
    seed = attempt_seed(plan.seed, task.place)
    return await run_episode(Attempt(task.query, opening, prompt_hash, seed), setting)


def attempt_seed(seed: int, place: Place) -> int:
    """The seed of one attempt: of its place, not of its turn."""
    key = int.from_bytes(hashlib.sha256(place.query_key.encode()).digest()[:8])
    state = np.random.SeedSequence([seed, key, place.occurrence, place.attempt]).generate_state(1)
    return int(state[0])


def _places(plan: Plan) -> list[tuple[Query, list[Place]]]:
    seen: Counter[str] = Counter()
    placed = []
    for query in plan.queries:
        placed.append((query, [Place(query.key, seen[query.key], attempt) for attempt in range(plan.group_size)]))
        seen[query.key] += 1
    return placed


class _Board:
    """Counts what is finished, and tells."""

    def __init__(self, total: int, tell: Callable[[Progress], None]) -> None:
        self._total = total
        self._tell = tell
        self._done = 0
        self._failed = 0

    def note(self, rollout: Rollout, *, is_resumed: bool) -> Rollout:
        self._done += 1
        self._failed += not rollout.is_valid
        self._tell(Progress(self._done, self._total, self._failed, rollout, is_resumed))
        return rollout
