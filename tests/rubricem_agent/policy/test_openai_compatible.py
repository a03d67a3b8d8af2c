"""Served policies in text: layouts, stops, retries, cost and refusals."""

import pytest
from pydantic import SecretStr

from rubricem_agent.policy.gemini import GeminiPolicy
from rubricem_agent.policy.openai_compatible import OpenAICompatiblePolicy
from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.http_failures import ContextOverflow
from rubricem_env.llm.openai_compatible import OpenAICompatibleModel
from rubricem_env.llm.usage import SpendLimitReached, SpendLimits
from rubricem_env.testing.loopback import free_port, serve_loopback
from rubricem_env.testing.servers import ModelReply, ModelServer
from rubricem_records.rollouts.sampling import Sampling
from tests.rubricem_agent.policy.shared import ANSWER, CALL, OBSERVATION, Ears, service, turn

KEY = SecretStr("sk-canary-0123456789")


def replies(*streamed):
    """A server's answers in order, the last one again and again."""
    left = list(streamed)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


class Harness:
    """One conversation with a fake server."""

    def __init__(self, server, url, service):
        self.server = server
        self.service = service
        self.policy = OpenAICompatiblePolicy(OpenAICompatibleModel("m", f"{url}/v1", key=KEY, timeout=5.0), service)
        self.ears = Ears()

    async def turns(self, opening, count, max_tokens=1_000):
        conversation = self.policy.open(opening, sampling=Sampling(), seed=3)
        emissions = []
        for number in range(count):
            emissions.append(await conversation.emit(max_tokens=max_tokens, listener=self.ears))
            conversation.observe(f"<tool_output>{number}</tool_output>")
        return emissions


@pytest.fixture
async def harness():
    opened = []

    def start(*streamed, models=None, **settings):
        server = ModelServer(replies(*streamed), models=models)
        context = serve_loopback(server)
        opened.append((Harness(server, context.__enter__(), service(**settings)), context))
        return opened[-1][0]

    yield start
    for one, context in opened:
        await one.policy.aclose()
        context.__exit__(None, None, None)


VLLM = {"m": "vllm"}


async def test_vllm_gets_the_episode_as_one_assistant_turn_in_its_own_template(harness, opening):
    started = harness(ModelReply(CALL, stop_reason="</call_tool>"), ModelReply(ANSWER), models=VLLM)
    await started.turns(opening, 2)
    first, second = started.server.asked
    rendered = f"[system]{opening.system}[user]{opening.user}[assistant]"
    assert (first.path, first.body["prompt"]) == ("/v1/completions", rendered)
    assert second.body["prompt"] == f"{rendered}{CALL}<tool_output>0</tool_output>"
    assert second.body["include_stop_str_in_output"] is True


async def test_on_vllm_a_notice_after_a_turn_that_the_model_ended_is_a_message_of_the_user(harness, opening):
    ended, later = ModelReply("I give up."), ModelReply("Again.")
    started = harness(ended, ModelReply(CALL, stop_reason="</call_tool>"), later, ModelReply(ANSWER), models=VLLM)
    await started.turns(opening, 4)
    rendered = f"[system]{opening.system}[user]{opening.user}[assistant]"
    first = f"{rendered}I give up.[user]<tool_output>0</tool_output>[assistant]"
    second = f"{first}{CALL}<tool_output>1</tool_output>"
    prompts = [asked.body["prompt"] for asked in started.server.asked]
    assert prompts == [rendered, first, second, f"{second}Again.[user]<tool_output>2</tool_output>[assistant]"]


async def test_other_servers_get_turns_as_messages(harness, opening):
    started = harness(ModelReply(CALL), ModelReply(ANSWER))
    await started.turns(opening, 2)
    assert started.server.asked[1].path == "/v1/chat/completions"
    roles = [(m["role"], m["content"]) for m in started.server.asked[1].body["messages"][2:]]
    assert roles == [("assistant", CALL), ("user", "<tool_output>0</tool_output>")]


async def test_a_stop_string_inside_a_thought_is_followed_by_another_request(harness, opening):
    thought = "<think>I end with </answer>"
    started = harness(
        ModelReply(thought, stop_reason="</answer>"), ModelReply(" later.</think><answer>60 m</answer>"), models=VLLM
    )
    (emission,) = await started.turns(opening, 1)
    assert (emission.text, emission.end) == (f"{thought} later.</think><answer>60 m</answer>", "action")
    assert started.server.asked[1].body["prompt"].endswith(f"[assistant]{thought}")


async def test_the_stream_is_left_as_soon_as_the_action_is_complete(harness, opening):
    started = harness(ModelReply(CALL + " and now I invent", hangs=True, piece=len(CALL)))
    (emission,) = await started.turns(opening, 1)
    assert (emission.text, emission.end) == (CALL, "action")


async def test_usage_is_the_servers_count_or_else_an_estimate(harness, opening):
    started = harness(ModelReply("<think>no action", usage=(100, 7)), ModelReply(CALL, usage=None))
    counted, estimated = await started.turns(opening, 2)
    assert (counted.usage.input_tokens, counted.usage.output_tokens) == (100, 7)
    # 49 letters and spaces, four to a token, and 16 signs, two to a token: 20.25, rounded up.
    assert estimated.usage.output_tokens == 21
    assert started.service.meter.total.usage.output_tokens == 28


async def test_a_broken_stream_begins_the_turn_anew_and_says_so(harness, opening):
    started = harness(ModelReply("<think>lost", breaks_off=True), ModelReply(ANSWER))
    (emission,) = await started.turns(opening, 1)
    assert (emission.text, started.ears.heard, started.ears.restarts) == (ANSWER, ANSWER, 1)


async def test_an_overloaded_server_is_retried_and_its_refusal_costs_no_tokens(harness, opening):
    started = harness(ModelReply("busy", status=503), ModelReply(ANSWER))
    (emission,) = await started.turns(opening, 1)
    spent = started.service.meter.total.usage
    assert (emission.end, started.ears.restarts) == ("action", 0)
    assert (spent.calls, spent.tokens) == (2, emission.usage.tokens)


async def test_a_context_overflow_is_tried_with_less_room_and_then_typed(harness, opening):
    started = harness(ModelReply("This model's maximum context length is 4096 tokens.", status=400))
    with pytest.raises(ContextOverflow, match="no longer fits"):
        await started.turns(opening, 1, max_tokens=200)
    assert [request.body["max_tokens"] for request in started.server.asked] == [200, 100, 64]


async def test_a_wrong_model_name_is_answered_with_the_names_there_are(harness, opening):
    started = harness(ModelReply(ANSWER), models={"qwen3-8b": "vllm", "other": "vllm"})
    with pytest.raises(ModelError, match="has no model 'm'; it has: qwen3-8b, other"):
        await started.turns(opening, 1)


async def test_a_model_that_never_closes_a_tag_ends_at_its_token_limit(harness, opening):
    (emission,) = await harness(ModelReply("<think>on and on", finish="length")).turns(opening, 1)
    assert emission.end == "length"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (ModelReply("", finish="content_filter"), "refused to write"),
        (ModelReply("<think>", usage=("many", "few")), "not a completion"),
        (ModelReply(f"bad key {KEY.get_secret_value()}", status=401), r"answered 401: .*\[redacted\]"),
    ],
)
async def test_a_blocked_turn_a_foreign_stream_and_a_refusal_are_typed_and_show_no_key(harness, opening, reply, said):
    started = harness(reply, attempts=1)
    with pytest.raises(ModelError, match=said) as refused:
        await started.turns(opening, 1)
    assert KEY.get_secret_value() not in str(refused.value)


async def test_a_spending_limit_stops_before_the_call(harness, opening):
    started = harness(ModelReply(ANSWER), limits=SpendLimits(tokens=100))
    with pytest.raises(SpendLimitReached):
        await started.turns(opening, 1)
    assert started.server.asked == []


async def test_a_server_that_is_not_there_is_named(opening):
    url = f"http://127.0.0.1:{free_port()}/v1"
    policy = OpenAICompatiblePolicy(OpenAICompatibleModel("m", url), service(attempts=1))
    with pytest.raises(ModelError, match=rf"no answer from {url}/.*Is the server running\?"):
        await turn(policy.open(opening, sampling=Sampling(), seed=0))
    await policy.aclose()


async def test_gemini_gets_turns_and_observations_as_contents(opening):
    server = ModelServer(replies(ModelReply(CALL), ModelReply(ANSWER)))
    with serve_loopback(server) as url:
        policy = GeminiPolicy("g", KEY, base_url=url, service=service())
        conversation = policy.open(opening, sampling=Sampling(temperature=0.5), seed=0)
        first = await turn(conversation, 100)
        conversation.observe(OBSERVATION)
        second = await turn(conversation, 100)
        await policy.aclose()
    assert (first.text, second.text) == (CALL, ANSWER)
    said = [(content["role"], content["parts"][0]["text"]) for content in server.asked[1].body["contents"]]
    assert said == [("user", opening.user), ("model", CALL), ("user", OBSERVATION)]
    assert server.asked[1].body["generationConfig"]["maxOutputTokens"] == 100


@pytest.mark.parametrize(
    ("streamed", "error", "said"),
    [
        (ModelReply("exceeds the maximum number of tokens allowed", status=400), ContextOverflow, "no longer fits"),
        (ModelReply("no such model", status=404), ModelError, "404: no such model"),
        (ModelReply("", finish="content_filter"), ModelError, "refused to write"),
    ],
)
async def test_gemini_refusals_are_typed(opening, streamed, error, said):
    with serve_loopback(ModelServer(replies(streamed))) as url:
        policy = GeminiPolicy("g", KEY, base_url=url, service=service())
        with pytest.raises(error, match=said):
            await policy.open(opening, sampling=Sampling(), seed=0).emit(max_tokens=9, listener=Ears())
        await policy.aclose()


async def test_a_server_that_is_still_loading_is_queried_again_for_its_models(harness, opening):
    started = harness(ModelReply(ANSWER), models=VLLM)
    started.server.loading = 1
    await started.turns(opening, 1)
    assert started.server.asked[0].path == "/v1/completions"
