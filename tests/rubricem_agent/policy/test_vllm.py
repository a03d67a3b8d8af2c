"""A vLLM server in token mode, over HTTP with a fake server."""

import pytest

from rubricem_agent.policy.vllm import ServedTokenPolicy
from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.http_failures import ContextOverflow
from rubricem_env.llm.openai_compatible import OpenAICompatibleModel
from rubricem_env.llm.usage import SpendLimitReached, SpendLimits
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.tiny_model import tiny_tokenizer
from rubricem_records.rollouts.sampling import Sampling
from tests.rubricem_agent.policy.shared import CALL, CORPUS, OBSERVATION, check_logprobs, service, turn
from tests.vllm_server import VllmServer, draw_from, recite


@pytest.fixture
async def start(tokenizer):
    """Serves a draw; gives a policy over it and the server."""
    opened = []

    def start(draw, *, served_tokenizer=None, max_length=4_096, limits=None, **faults):
        server = VllmServer(served_tokenizer or tiny_tokenizer(CORPUS), draw, max_length=max_length, **faults)
        context = serve_loopback(server)
        url = context.__enter__()
        policy = ServedTokenPolicy(OpenAICompatibleModel("m", f"{url}/v1"), tokenizer, service=service(limits))
        opened.append((policy, context))
        return policy, server

    yield start
    for policy, context in opened:
        await policy.aclose()
        context.__exit__(None, None, None)


async def test_the_next_request_is_prompt_turn_and_observation_id_by_id(start, tokenizer, opening):
    written = tokenizer.encode_foreign(CALL)
    policy, server = start(recite(written, tokenizer.encode_foreign("<answer>60 m</answer>")))
    conversation = policy.open(opening, sampling=Sampling(), seed=1)
    first = await turn(conversation)
    conversation.observe(OBSERVATION)
    second = await turn(conversation)
    prompt = tokenizer.encode_opening(opening)
    assert (first.text, first.end, second.end) == (CALL, "action", "action")
    assert server.asked[1]["prompt"] == [*prompt, *written, *tokenizer.encode_foreign(OBSERVATION)]
    assert first.usage.output_tokens == len(written)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
async def test_log_probabilities_are_those_of_the_model_at_the_temperature(start, model, opening, temperature):
    policy, _ = start(draw_from(model))
    conversation = policy.open(opening, sampling=Sampling(temperature=temperature), seed=1)
    await turn(conversation, 12)
    conversation.observe(OBSERVATION)
    await turn(conversation, 12)
    assert check_logprobs(conversation, model, temperature) == 24


async def test_ids_that_no_tokenizer_would_choose_are_kept_as_drawn(start, tokenizer, opening):
    odd = [token_id for char in CALL for token_id in tokenizer.encode_foreign(char)]
    assert odd != tokenizer.encode_foreign(CALL)
    policy, _ = start(recite(odd))
    conversation = policy.open(opening, sampling=Sampling(), seed=1)
    assert (await turn(conversation, 500)).text == CALL
    assert list(conversation.pieces[1].ids) == odd


async def test_a_stop_string_inside_a_thought_is_followed_by_another_request(start, tokenizer, opening):
    thought = tokenizer.encode_foreign("<think>I end with </answer>")
    rest = tokenizer.encode_foreign(" later.</think><answer>60 m</answer>")
    policy, server = start(recite(thought, rest))
    conversation = policy.open(opening, sampling=Sampling(), seed=1)
    assert (await turn(conversation)).end == "action"
    assert list(conversation.pieces[1].ids) == [*thought, *rest]
    assert server.asked[1]["prompt"] == [*tokenizer.encode_opening(opening), *thought]
    assert server.asked[0]["seed"] != server.asked[1]["seed"]


async def test_a_broken_stream_resumes_after_what_was_drawn(start, tokenizer, opening):
    written = tokenizer.encode_foreign(CALL)
    policy, server = start(recite(written, written[4:]), breaks_after=(4,))
    conversation = policy.open(opening, sampling=Sampling(), seed=1)
    assert (await turn(conversation)).text == CALL
    assert list(conversation.pieces[1].ids) == written
    assert server.asked[1]["prompt"][-4:] == written[:4]


async def test_the_token_that_ends_a_turn_is_kept(start, tokenizer, opening):
    (end,) = tokenizer.end_ids
    policy, _ = start(recite([*tokenizer.encode_foreign("I give up."), end]))
    conversation = policy.open(opening, sampling=Sampling(), seed=1)
    assert (await turn(conversation)).end == "stopped"
    assert conversation.pieces[1].ids[-1] == end


async def test_limits_are_the_turns_and_the_servers(start, tokenizer, opening):
    size = len(tokenizer.encode_opening(opening))
    policy, server = start(recite(tokenizer.encode_foreign(CALL)), max_length=size + 3)
    conversation = policy.open(opening, sampling=Sampling(), seed=1)
    assert (await turn(conversation)).end == "length"
    assert server.asked[0]["max_tokens"] == 3
    with pytest.raises(ContextOverflow, match=f"has {size + 3} tokens"):
        await turn(conversation)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"gives_ids": False}, "without token ids and their log-probabilities"),
        ({"owner": "somebody"}, "token mode needs vLLM"),
        ({"prompt_surplus": 1}, "it tokenises again"),
        ({"served_tokenizer": tiny_tokenizer(vocab_size=300)}, "has another tokenizer than the given folder"),
    ],
)
async def test_a_server_that_does_not_speak_in_our_tokens_is_refused(start, tokenizer, opening, fault, said):
    policy, _ = start(recite(tokenizer.encode_foreign(CALL)), **fault)
    with pytest.raises(ModelError, match=said):
        await turn(policy.open(opening, sampling=Sampling(), seed=1))


async def test_log_probabilities_from_before_the_temperature_are_refused_where_it_matters(start, model, opening):
    policy, _ = start(draw_from(model, is_raw=True))
    assert await turn(policy.open(opening, sampling=Sampling(), seed=1), 4)
    with pytest.raises(ModelError, match="--logprobs-mode processed_logprobs"):
        await turn(policy.open(opening, sampling=Sampling(temperature=0.7), seed=1), 4)


async def test_a_spending_limit_stops_before_the_call(start, tokenizer, opening):
    policy, server = start(recite(tokenizer.encode_foreign(CALL)), limits=SpendLimits(tokens=50))
    with pytest.raises(SpendLimitReached):
        await turn(policy.open(opening, sampling=Sampling(), seed=1))
    assert server.asked == []
