"""Runs episodes with a policy: one episode, or groups of attempts at many questions."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import numpy as np

from rubricem_agent.policy.base import Listener, Opening, Policy
from rubricem_agent.rollout.token_labels import label_tokens
from rubricem_env.concurrency import run_together
from rubricem_env.domain.errors import ConfigError, ModelError, boundary
from rubricem_env.domain.trajectory import Ending, Query
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import Continue, Episode, EpisodeLimits, Finished
from rubricem_env.env.step import advance
from rubricem_env.llm.http_failures import ContextOverflow
from rubricem_env.llm.tracing import note_turn, span
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.tools.base import Toolbox
from rubricem_records.rollouts.rollouts import Rollout, RolloutTrajectory
from rubricem_records.rollouts.sampling import Sampling
from rubricem_records.rollouts.snippet_sources import sources_of


class Attempt(NamedTuple):
    """One episode to run."""

    query: Query
    opening: Opening
    prompt_hash: str = ""
    seed: int = 0


class RolloutContext(NamedTuple):
    """What all episodes of a run have in common."""

    policy: Policy
    toolbox: Toolbox
    limits: EpisodeLimits = EpisodeLimits()
    sampling: Sampling = Sampling()
    context: ContextLimits = ContextLimits()
    """How much of an episode the policy reads."""


async def run_episode(attempt: Attempt, context: RolloutContext, *, listener: Listener | None = None) -> Rollout:
    """Run one episode to its end. A failure of the policy is recorded on the rollout; nothing is raised for it.

    `listener` follows the episode: the text of the policy, and what it observes.

    A conversation that outgrows the policy's context ends like one that used up its tokens: by its limits. The
    rollout carries `parsed`, so nobody parses the trajectory again.
    """
    policy, toolbox, limits, sampling, _ = context
    listener = listener or Listener()
    try:
        episode = open_episode(attempt, context)
    except ConfigError as refused:
        return _refused(attempt, context, str(refused))
    listener.began(episode)
    conversation = policy.open(attempt.opening, sampling=sampling, seed=attempt.seed)
    usage = Usage()
    failure = ""
    has_overflowed = False
    reply: Continue | Finished | None = None
    try:
        with span("invoke_agent", "rubricem", begins=(attempt.opening.user, attempt.seed)):
            while not isinstance(reply, Finished):
                left = max(1, min(limits.max_tokens - episode.tokens_used, sampling.max_turn_tokens))
                with span("chat", policy.name) as turn, boundary(ModelError, f"get a turn from {policy.name}"):
                    emission = await conversation.emit(max_tokens=left, listener=listener)
                    note_turn(turn, emission.text, emission.usage)
                usage += emission.usage
                folds = len(episode.folds)
                reply = await advance(episode, toolbox, emission.text, thought=emission.thought)
                if reply.observation:
                    listener.found(sources_of(episode.last_segment))
                    listener.observed(reply.observation)
                    if len(episode.folds) > folds:
                        view = episode.view
                        listener.folded(view)
                        conversation.fold(view)
                    else:
                        conversation.observe(reply.observation)
    except ContextOverflow:
        has_overflowed = True
        episode.abandon()
    except ModelError as cause:
        failure = str(cause)
        episode.abandon()
    finally:
        conversation.close()
    parsed = episode.read()
    if has_overflowed:
        trajectory = parsed.trajectory.model_copy(update={"ending": Ending.TOKEN_BUDGET})
        parsed = parse_trajectory(trajectory, turns=parsed.turns)
    pieces = conversation.pieces
    return Rollout(
        trajectory=RolloutTrajectory.of_parsed(parsed),
        policy=policy.name,
        prompt_hash=attempt.prompt_hash,
        temperature=sampling.temperature,
        usage=usage,
        tokens=label_tokens(pieces, parsed.turns, spans=parsed.spans, scaffold=parsed.scaffold) if pieces else None,
        failure=failure,
    )


def open_episode(attempt: Attempt, context: RolloutContext) -> Episode:
    """The episode of an attempt, before its first turn.

    Raises:
        ConfigError: the opening leaves no room in a folded context.
    """
    return Episode(
        attempt.query,
        prompt=attempt.opening.user,
        limits=context.limits,
        count_tokens=context.policy.count_tokens,
        seed=attempt.seed,
        scaffold=attempt.opening.scaffold,
        context=context.context,
        system=attempt.opening.system,
    )


def _refused(attempt: Attempt, context: RolloutContext, failure: str) -> Rollout:
    """The rollout of an episode that cannot begin."""
    episode = open_episode(attempt, context._replace(context=ContextLimits()))
    episode.abandon()
    return Rollout(
        trajectory=RolloutTrajectory.of_parsed(episode.read()),
        policy=context.policy.name,
        prompt_hash=attempt.prompt_hash,
        temperature=context.sampling.temperature,
        failure=failure,
    )


class RolloutIndex(NamedTuple):
    """Identifies a rollout of a run."""

    query_key: str
    occurrence: int
    """The occurrence of the question, from 0."""
    attempt: int


def attempt_seed(seed: int, index: RolloutIndex) -> int:
    """The seed of one attempt: it depends on the attempt's index, not on the order of running."""
    query_key, occurrence, attempt = index
    key = int.from_bytes(hashlib.sha256(query_key.encode()).digest()[:8])
    return int(np.random.SeedSequence([seed, key, occurrence, attempt]).generate_state(1)[0])


OpenQuery = Callable[[Query, int], Awaitable[tuple[Opening, str]]]
"""The opening of the nth attempt at a question, from 0, and the hash of the prompt it was made from."""


async def run_groups(
    queries: Sequence[Query],
    open_query: OpenQuery,
    context: RolloutContext,
    *,
    group_size: int = 8,
    concurrency: int = 256,
    seed: int = 0,
    on_rollout: Callable[[Rollout], object] = id,
) -> list[list[Rollout]]:
    """The rollouts of each question, in the order of the questions and of the attempts, whatever finished first.

    What an attempt draws depends on its index and the seed alone. A failed episode is a rollout with a failure. A
    reached spending limit or an interrupt ends the run. `on_rollout` gets each as soon as it has ended.
    """
    slots = asyncio.Semaphore(concurrency)

    async def run(index: RolloutIndex, query: Query) -> Rollout:
        async with slots:
            opening, prompt_hash = await open_query(query, index.attempt)
            rollout = await run_episode(Attempt(query, opening, prompt_hash, attempt_seed(seed, index)), context)
        on_rollout(rollout)
        return rollout

    seen: Counter[str] = Counter()
    tasks = []
    for query in queries:
        tasks += [run(RolloutIndex(query.key, seen[query.key], attempt), query) for attempt in range(group_size)]
        seen[query.key] += 1
    rollouts = await run_together(tasks)
    return [rollouts[start : start + group_size] for start in range(0, len(rollouts), group_size)]
