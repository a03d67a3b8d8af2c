"""One episode with a policy, whatever happens to it."""

import itertools

import pytest

from rubricem_agent.policy.base import Emission, Listener, Opening
from rubricem_agent.policy.local import LocalPolicy, policy_tokenizer
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.rollout.run import Attempt, RolloutContext, run_episode
from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.trajectory import Ending, Origin, Query
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.llm.http_failures import ContextOverflow
from rubricem_env.llm.usage import SpendLimitReached, Usage
from rubricem_env.testing.episodes import DEMO_QUERY, ScriptedResearcher, writes
from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer
from rubricem_env.world.offline import shipped_toolbox
from rubricem_records.rollouts.sampling import Sampling

QUERY = Query(question="How wide is the Tall Fox?")
CALL = '<think>t</think><call_tool name="google_search">Tall Fox width</call_tool>'


async def play(policy, limits=None, query=QUERY, listener=None):
    context = RolloutContext(policy, shipped_toolbox(), limits or EpisodeLimits())
    attempt = Attempt(query, Opening("rules", query.question), "hash", seed=1)
    return await run_episode(attempt, context, listener=listener)


class Broken:
    """A policy that gives one turn and then raises."""

    name = "broken"

    def __init__(self, failure):
        self._failure = failure
        self.closed = False

    def open(self, opening, *, sampling, seed):
        self._turns = iter([Emission(CALL, "action", Usage(calls=1, output_tokens=3))])
        return self

    async def emit(self, *, max_tokens, listener):
        for emission in self._turns:
            return emission
        raise self._failure

    def observe(self, text):
        return None

    def count_tokens(self, text):
        return 1

    def close(self):
        self.closed = True

    pieces = ()


async def test_an_episode_is_played_to_its_answer():
    rollout = await play(ScriptedPolicy(lambda opening, seed: ScriptedResearcher()), query=DEMO_QUERY)
    assert rollout.trajectory.ending is Ending.ANSWERED
    assert (rollout.prompt_hash, rollout.policy, rollout.is_valid) == ("hash", "scripted", True)
    assert rollout.usage.calls == 4


@pytest.mark.parametrize(
    ("raised", "failure", "ending"),
    [
        (ModelError("the server is gone"), "the server is gone", Ending.ABANDONED),
        (KeyError("x"), "could not get a turn from broken: KeyError: 'x'", Ending.ABANDONED),
        (ContextOverflow("full"), "", Ending.TOKEN_BUDGET),
    ],
)
async def test_a_failing_policy_is_an_invalid_rollout_and_a_full_context_a_limit(raised, failure, ending):
    policy = Broken(raised)
    rollout = await play(policy)
    assert (rollout.failure, rollout.trajectory.ending, rollout.is_valid) == (failure, ending, not failure)
    assert policy.closed


async def test_a_reached_spending_limit_is_raised():
    with pytest.raises(SpendLimitReached):
        await play(Broken(SpendLimitReached("enough")))


@pytest.mark.parametrize(("turn", "ending"), [("<think>on and on", Ending.STALLED), (CALL, Ending.CALL_BUDGET)])
async def test_a_model_that_never_answers_ends_by_a_limit(turn, ending):
    rollout = await play(ScriptedPolicy(writes(turn)))
    assert (rollout.trajectory.ending, rollout.is_valid) == (ending, True)


async def test_the_audience_hears_the_turns_and_what_comes_back():
    class Ears(Listener):
        heard = ""

        def wrote(self, text):
            self.heard += text

        def observed(self, text):
            self.heard += "|seen|"

    ears = Ears()
    await play(ScriptedPolicy(writes(CALL, "<think>t</think><answer>60 m</answer>")), listener=ears)
    assert ears.heard == f"{CALL}|seen|<think>t</think><answer>60 m</answer>"


async def test_a_turn_gets_no_more_tokens_than_the_episode_has_left():
    asked = []

    class Asking(Broken):
        async def emit(self, *, max_tokens, listener):
            asked.append(max_tokens)
            return await super().emit(max_tokens=max_tokens, listener=listener)

    await play(Asking(ModelError("end")), EpisodeLimits(max_tokens=100))
    # The call and its result count 1 token each with this policy's counter.
    assert asked == [100, 98]


async def test_a_local_episode_carries_tokens_that_decode_to_its_text():
    tokenizer = policy_tokenizer(tiny_tokenizer())
    policy = LocalPolicy(tiny_qwen3(tokenizer.size), tokenizer, rows=1)
    rollout = await run_episode(
        Attempt(QUERY, Opening("rules", QUERY.question), seed=4),
        RolloutContext(policy, shipped_toolbox(), sampling=Sampling(max_turn_tokens=30)),
    )
    await policy.aclose()
    policy_ids = itertools.compress(rollout.tokens.ids, rollout.tokens.policy_mask)
    written = [token_id for token_id in policy_ids if token_id not in tokenizer.end_ids]
    assert rollout.trajectory.ending is Ending.STALLED
    assert tokenizer.decode(written) == rollout.trajectory.policy_text
    assert sum(segment.origin is Origin.POLICY for segment in rollout.trajectory.segments) == 2
