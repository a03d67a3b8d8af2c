"""Our turns over veRL's engines: the request, the tokens that are kept, and the versions of the weights."""

import pytest

from rubricem_agent.policy.base import Listener, Opening
from rubricem_env.domain.errors import ModelError
from rubricem_records.rollouts.sampling import Sampling
from tests.trainers.verl_backend.fakes import FakeClient
from trainers.verl_backend.rollout import EnginePolicy

OPENING = Opening("s", "How wide?")
ACTION = "<think>t</think><answer>60 m</answer>"


def conversation(client, tokenizer):
    policy = EnginePolicy(client, tokenizer, max_length=4_096)
    return policy, policy.open(OPENING, sampling=Sampling(temperature=0.7), seed=0)


async def test_a_turn_ends_with_its_action_and_what_an_engine_wrote_beyond_is_dropped(tokenizer):
    _, talk = conversation(FakeClient(tokenizer, [ACTION + " and on and on"]), tokenizer)
    emission = await talk.emit(max_tokens=200, listener=Listener())
    assert emission.end == "action"
    assert tokenizer.decode(talk.pieces[-1].ids).startswith(ACTION)
    assert len(talk.pieces[-1].logprobs) == len(talk.pieces[-1].ids)


async def test_the_engine_is_asked_at_our_temperature_to_stop_at_our_actions_without_other_filters(tokenizer):
    client = FakeClient(tokenizer, [ACTION])
    await conversation(client, tokenizer)[1].emit(max_tokens=200, listener=Listener())
    asked = client.params[0]
    assert (asked["temperature"], asked["top_p"], asked["top_k"], asked["logprobs"]) == (0.7, 1.0, -1, True)
    assert asked["stop"] == ["</call_tool>", "</answer>"]


async def test_a_stop_string_inside_a_thought_is_followed_by_another_request(tokenizer):
    client = FakeClient(tokenizer, ["<think>I write </answer>", " later</think><answer>60 m</answer>"])
    emission = await conversation(client, tokenizer)[1].emit(max_tokens=200, listener=Listener())
    assert emission.text == "<think>I write </answer> later</think><answer>60 m</answer>"
    assert len(client.prompts[1]) > len(client.prompts[0])


async def test_a_turn_that_the_model_ends_itself_is_not_asked_on(tokenizer):
    client = FakeClient(tokenizer, ["<think>I give up</think>"])
    emission = await conversation(client, tokenizer)[1].emit(max_tokens=200, listener=Listener())
    assert (emission.end, len(client.prompts)) == ("stopped", 1)


async def test_a_turn_has_no_more_tokens_than_it_may(tokenizer):
    client = FakeClient(tokenizer, ["<think>" + "wide " * 200])
    emission = await conversation(client, tokenizer)[1].emit(max_tokens=20, listener=Listener())
    assert (emission.end, emission.usage.output_tokens) == ("length", 20)


async def test_the_policy_remembers_the_oldest_and_the_newest_weights_that_drew(tokenizer):
    client = FakeClient(tokenizer, ['<call_tool name="google_search">x</call_tool>', ACTION], versions=[3, 5])
    policy, talk = conversation(client, tokenizer)
    await talk.emit(max_tokens=200, listener=Listener())
    await talk.emit(max_tokens=200, listener=Listener())
    assert policy.versions(default=0) == (3, 5)


async def test_an_engine_without_log_probabilities_is_refused_with_the_key_that_asks_for_them(tokenizer):
    client = FakeClient(tokenizer, [ACTION])
    client.has_logprobs = False
    with pytest.raises(ModelError, match="calculate_log_probs"):
        await conversation(client, tokenizer)[1].emit(max_tokens=200, listener=Listener())
