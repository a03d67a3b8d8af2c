"""One episode with a policy, from its opening to its end.

Many episodes at once: n attempts at each of m questions, so many at a time, in an order that does not matter.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from rubricem_agent.policy.base import ContextOverflow, Conversation, Listener, Opening, Policy, Sampling, Silence
from rubricem_agent.rollout.rollout import Rollout, RolloutIndex, RolloutJournal
from rubricem_agent.rollout.tokens import label_tokens
from rubricem_env.concurrency import run_together
from rubricem_env.domain.errors import ModelError, boundary
from rubricem_env.domain.trajectory import Ending, Query
from rubricem_env.env.episode import Continue, Episode, EpisodeLimits, Finished
from rubricem_env.env.step import advance
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.reading import Reading
from rubricem_env.tools.base import Toolbox


class Attempt(NamedTuple):
    """One episode to play."""

    query: Query
    opening: Opening
    prompt_hash: str = ""
    seed: int = 0


class Setting(NamedTuple):
    """What all episodes of a run have in common."""

    policy: Policy
    toolbox: Toolbox
    limits: EpisodeLimits = EpisodeLimits()
    sampling: Sampling = Sampling()


class Audience(Listener, Protocol):
    """Follows an episode: the policy's text as it is written, and what it reads in return."""

    def observed(self, text: str) -> None:
        """A tool's answer, or a notice of the environment."""
        ...


class NoAudience(Silence):
    """An audience that does not follow."""

    def observed(self, text: str) -> None:
        return None


async def run_episode(attempt: Attempt, setting: Setting, *, audience: Audience | None = None) -> Rollout:
    """Play one episode to its end. A failure of the policy is on the rollout; nothing is raised for it.

    A conversation that outgrows the policy's context ends like one that used up its tokens: by its limits.
    """
    episode = Episode(
        attempt.query,
        prompt=attempt.opening.user,
        limits=setting.limits,
        count_tokens=setting.policy.count_tokens,
        seed=attempt.seed,
    )
    played = _Played(episode, audience or NoAudience())
    conversation = setting.policy.open(attempt.opening, sampling=setting.sampling, seed=attempt.seed)
    try:
        failure = await played.to_the_end(conversation, setting)
    finally:
        conversation.close()
    return _record(played, conversation, attempt=attempt, setting=setting, failure=failure)


class _Played:
    """An episode while it is played."""

    def __init__(self, episode: Episode, audience: Audience) -> None:
        self.episode = episode
        self.usage = Usage()
        self.overflowed = False
        self._audience = audience

    async def to_the_end(self, conversation: Conversation, setting: Setting) -> str:
        """Turn the crank until the episode is over; the failure that ended it, or nothing."""
        try:
            reply = await self._turn(conversation, setting)
            while not isinstance(reply, Finished):
                reply = await self._turn(conversation, setting)
        except ContextOverflow:
            self.overflowed = True
            self.episode.abandon()
        except ModelError as failure:
            self.episode.abandon()
            return str(failure)
        return ""

    async def _turn(self, conversation: Conversation, setting: Setting) -> Continue | Finished:
        left = setting.limits.max_tokens - self.episode.tokens_used
        with boundary(ModelError, f"get a turn from {setting.policy.name}"):
            emission = await conversation.emit(
                max_tokens=max(1, min(left, setting.sampling.max_turn_tokens)), listener=self._audience
            )
        self.usage += emission.usage
        reply = await advance(self.episode, setting.toolbox, emission.text)
        if reply.observation:
            self._audience.observed(reply.observation)
            conversation.observe(reply.observation)
        return reply


def _record(
    played: _Played, conversation: Conversation, *, attempt: Attempt, setting: Setting, failure: str
) -> Rollout:
    reading: Reading = played.episode.read()
    trajectory = reading.trajectory
    if played.overflowed:
        trajectory = trajectory.model_copy(update={"ending": Ending.TOKEN_BUDGET})
    pieces = conversation.pieces
    return Rollout(
        trajectory=trajectory,
        policy=setting.policy.name,
        prompt_hash=attempt.prompt_hash,
        temperature=setting.sampling.temperature,
        usage=played.usage,
        tokens=label_tokens(pieces, reading.turns, spans=reading.spans) if pieces else None,
        failure=failure,
    )


OpenQuery = Callable[[Query], Awaitable[tuple[Opening, str]]]
"""The opening for a question and the hash of the prompt it was made from; asked once for each attempt."""


class RolloutProgress(NamedTuple):
    """How far a run is."""

    done: int
    total: int
    failed: int
    latest: Rollout
    is_resumed: bool
    """The latest one was finished by an earlier run."""


class RolloutPlan(NamedTuple):
    """What to roll out."""

    queries: Sequence[Query]
    open_query: OpenQuery
    group_size: int = 8
    concurrency: int = 256
    seed: int = 0


class _Task(NamedTuple):
    place: RolloutIndex
    query: Query


async def run_groups(
    plan: RolloutPlan,
    setting: Setting,
    *,
    journal: RolloutJournal | None = None,
    on_progress: Callable[[RolloutProgress], None] | None = None,
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


async def _play(task: _Task, plan: RolloutPlan, *, setting: Setting) -> Rollout:
    opening, prompt_hash = await plan.open_query(task.query)
    seed = attempt_seed(plan.seed, task.place)
    return await run_episode(Attempt(task.query, opening, prompt_hash, seed), setting)


def attempt_seed(seed: int, place: RolloutIndex) -> int:
    """The seed of one attempt: of its place, not of its turn."""
    key = int.from_bytes(hashlib.sha256(place.query_key.encode()).digest()[:8])
    state = np.random.SeedSequence([seed, key, place.occurrence, place.attempt]).generate_state(1)
    return int(state[0])


def _places(plan: RolloutPlan) -> list[tuple[Query, list[RolloutIndex]]]:
    seen: Counter[str] = Counter()
    placed = []
    for query in plan.queries:
        placed.append(
            (query, [RolloutIndex(query.key, seen[query.key], attempt) for attempt in range(plan.group_size)])
        )
        seen[query.key] += 1
    return placed


class _Board:
    """Counts what is finished, and tells."""

    def __init__(self, total: int, tell: Callable[[RolloutProgress], None]) -> None:
        self._total = total
        self._tell = tell
        self._done = 0
        self._failed = 0

    def note(self, rollout: Rollout, *, is_resumed: bool) -> Rollout:
        self._done += 1
        self._failed += not rollout.is_valid
        self._tell(RolloutProgress(self._done, self._total, self._failed, rollout, is_resumed))
        return rollout
