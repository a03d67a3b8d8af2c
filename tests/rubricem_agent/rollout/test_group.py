"""Many episodes at once: order, seeds, limits and failures."""

import asyncio

import pytest

from rubricem_agent.policy.base import Emission, Opening
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.rollout.run import RolloutContext, attempt_seed, run_groups
from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.trajectory import Query
from rubricem_env.llm.usage import SpendLimitReached
from rubricem_env.testing.episodes import writes
from rubricem_env.world.offline import shipped_toolbox

QUERIES = tuple(Query(question=f"Question {number}?") for number in range(3))


async def open_query(query, _attempt):
    return Opening("rules", query.question), "hash"


async def play(policy=None, queries=QUERIES, **options):
    context = RolloutContext(
        policy or ScriptedPolicy(writes("<think>t</think><answer>60 m</answer>")), shipped_toolbox()
    )
    return await run_groups(queries, open_query, context, **{"group_size": 2, "seed": 5, **options})


class Crowded:
    """A policy that counts how many of its turns run at once; later conversations are done first."""

    name = "crowded"

    def __init__(self, failure=None):
        self.most = self._running = self._opened = 0
        self.finished = []
        self._failure = failure

    def open(self, opening, *, sampling, seed):
        self._opened += 1
        return _CrowdedTurn(self, 12 - self._opened, seed, self._opened)

    def count_tokens(self, text):
        return 1


class _CrowdedTurn:
    pieces = ()

    def __init__(self, policy, yields, seed, number):
        self._policy, self._yields, self._seed, self._number = policy, yields, seed, number

    async def emit(self, *, max_tokens, listener):
        self._policy._running += 1
        self._policy.most = max(self._policy.most, self._policy._running)
        for _ in range(self._yields):
            await asyncio.sleep(0)
        self._policy._running -= 1
        self._policy.finished.append(self._number)
        if self._policy._failure is not None:
            raise self._policy._failure
        return Emission(f"<answer>{self._seed}</answer>", "action")

    def observe(self, text):
        return None

    def close(self):
        return None


async def test_results_are_in_the_order_of_questions_and_attempts_whatever_finished_first():
    policy = Crowded()
    groups = await play(policy)
    asked = [[rollout.trajectory.question for rollout in group] for group in groups]
    assert asked == [[query.question] * 2 for query in QUERIES]
    assert policy.finished == sorted(policy.finished, reverse=True) != []


async def test_an_attempt_draws_the_same_however_many_run_at_once():
    assert await play(Crowded(), concurrency=1) == await play(Crowded(), concurrency=6)


async def test_no_more_run_at_once_than_allowed():
    policy = Crowded()
    await play(policy, concurrency=2)
    assert policy.most == 2


async def test_a_reached_spending_limit_ends_the_run():
    with pytest.raises(SpendLimitReached, match="enough"):
        await play(Crowded(SpendLimitReached("enough")))


def test_each_index_has_its_own_seed():
    indices = [(key, occurrence, attempt) for key in "ab" for occurrence in (0, 1) for attempt in (0, 1)]
    assert len({attempt_seed(0, index) for index in indices}) == 8


async def test_a_question_asked_twice_has_two_groups():
    groups = await play(Crowded(), QUERIES[:1] * 2)
    assert len({rollout.trajectory.seed for group in groups for rollout in group}) == 4


async def test_a_failed_episode_is_a_rollout_with_its_failure():
    groups = await play(Crowded(ModelError("gone")))
    assert {rollout.failure for group in groups for rollout in group} == {"gone"}
