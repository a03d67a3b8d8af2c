"""Streams that are truncated, aborted or garbage, or that echo the key: typed failures, and no turn of the policy."""

import asyncio
import json
import traceback

import pytest
from starlette.responses import Response

from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.gemini import GeminiPolicy
from rubricem_agent.policy.openai_compatible import OpenAICompatiblePolicy
from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.openai_compatible import OpenAICompatibleModel
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelReply, ModelServer
from rubricem_records.rollouts.sampling import Sampling
from tests.rubricem_agent.policy.shared import ANSWER, service, turn
from tests.rubricem_agent.policy.test_openai_compatible import KEY, replies


@pytest.mark.parametrize("text", ["", "<think>half a thou"])
async def test_a_truncated_stream_of_gemini_is_retried(opening, text):
    server = ModelServer(replies(ModelReply(text, breaks_off=True), ModelReply(ANSWER)))
    with serve_loopback(server) as url:
        policy = GeminiPolicy("g", KEY, base_url=url, service=service())
        emission = await turn(policy.open(opening, sampling=Sampling(), seed=0))
        await policy.aclose()
    assert (emission.text, emission.end) == (ANSWER, "action")


GARBAGE = [
    b'data: {"candidates": [{"content": {"parts": "x"}}]}\n\n',
    b"data: {" + KEY.get_secret_value().encode() + b"\n\n",
    b'data: {"error": {"message": "bad key ' + KEY.get_secret_value().encode() + b'", "code": 503}}\n\n',
]


def streaming(body, **headers):
    async def app(scope, receive, send):
        await Response(body, media_type="text/event-stream", headers=headers)(scope, receive, send)

    return app


async def stream_failure(make, body, **headers):
    with serve_loopback(streaming(body, **headers)) as url:
        policy = make(url)
        with pytest.raises(ModelError) as failure:
            await turn(policy.open(Opening("s", "u"), sampling=Sampling(), seed=0))
        await policy.aclose()
    return failure.value


MAKERS = {
    "gemini": lambda url: GeminiPolicy("g", KEY, base_url=url, service=service(attempts=1)),
    "openai": lambda url: OpenAICompatiblePolicy(
        OpenAICompatibleModel("m", url, key=KEY), service(attempts=1), layout="messages"
    ),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("body", GARBAGE)
async def test_garbage_in_a_stream_is_retryable_and_never_shows_the_key(kind, body):
    failure = await stream_failure(MAKERS[kind], body)
    assert failure.is_retryable
    assert KEY.get_secret_value() not in "".join(traceback.format_exception(failure))


def event(text=None, finish=None, **more):
    delta = {"content": text, **more}
    return b"data: " + json.dumps({"choices": [{"delta": delta, "finish_reason": finish}]}).encode() + b"\n\n"


def part(text="", finish=None, **more):
    candidate = {"content": {"parts": [{"text": text, **more}]}, **({"finishReason": finish} if finish else {})}
    return b"data: " + json.dumps({"candidates": [candidate]}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
HALF = "<think>t</think><answer>60"
NO_TURNS = [
    ("openai", DONE),
    ("openai", b'data: {"choices": []}\n\n' + DONE),
    ("openai", b": ping\n\n" * 3 + DONE),
    ("openai", event() + DONE),
    ("openai", event(HALF) + event(finish="abort") + DONE),
    ("openai", event(HALF) + event(finish="error") + DONE),
    ("openai", event(finish="tool_calls") + DONE),
    ("openai", event(reasoning_content="A thought.") + DONE),
    ("openai", event(reasoning_content="A thought.") + event(finish="stop") + DONE),
    ("openai", event(reasoning="A thought.") + event(finish="length") + DONE),
    ("openai", event("", "length") + DONE),
    ("openai", event(" \u200b\n") + event(finish="stop") + DONE),
    ("openai", event("\ufeff") + event(finish="length") + DONE),
    ("openai", b'{"error": {"message": "overloaded"}}'),
    ("openai", b"\n<html><p>Sign in</html>"),
    ("openai", b"data: " + b"x" * 6_000_000),
    ("gemini", b""),
    ("gemini", part(HALF)),
    ("gemini", part(HALF, "OTHER")),
    ("gemini", part("", "MAX_TOKENS")),
    ("gemini", part("\u2060\n", "STOP")),
    ("gemini", part("A thought.", thought=True) + part("", "STOP")),
    ("gemini", part("", "MALFORMED_FUNCTION_CALL")),
    ("gemini", part("", "FINISH_REASON_UNSPECIFIED")),
]


@pytest.mark.parametrize(("kind", "body"), NO_TURNS)
async def test_a_stream_that_the_server_ends_is_its_failure_and_no_turn_of_the_policy(kind, body):
    assert (await stream_failure(MAKERS[kind], body)).is_retryable


@pytest.mark.parametrize("body", [event(refusal="I cannot."), event(ANSWER, "stop", refusal="I cannot.")])
async def test_a_refusal_in_a_stream_is_no_turn_whatever_stands_beside_it(body):
    assert "refused to write" in str(await stream_failure(MAKERS["openai"], body + event(finish="stop") + DONE))


async def test_thoughts_beside_the_text_are_kept_apart_and_end_no_turn():
    bodies = {
        "openai": event(reasoning_content="Maybe </answer>") + event(ANSWER) + DONE,
        "gemini": part("Maybe </answer>", thought=True) + part(ANSWER, "STOP"),
    }
    for kind, body in bodies.items():
        with serve_loopback(streaming(body)) as url:
            policy = MAKERS[kind](url)
            emission = await turn(policy.open(Opening("s", "u"), sampling=Sampling(), seed=0))
            await policy.aclose()
        assert (emission.text, emission.thought, emission.end) == (ANSWER, "Maybe </answer>", "action")


@pytest.mark.parametrize(
    ("body", "text", "end"),
    [
        (event(ANSWER) + DONE, ANSWER, "action"),
        (event("<think>t</think>") + event(finish="eos") + DONE, "<think>t</think>", "stopped"),
        (event(HALF) + DONE, HALF, "stopped"),
        (event(reasoning_content="t") + event("So.") + event(finish="stop", refusal=None) + DONE, "So.", "stopped"),
    ],
)
async def test_a_stream_that_the_policy_ends_is_a_turn_even_without_an_action(body, text, end):
    with serve_loopback(streaming(body)) as url:
        policy = MAKERS["openai"](url)
        emission = await turn(policy.open(Opening("s", "u"), sampling=Sampling(), seed=0))
        await policy.aclose()
    assert (emission.text, emission.end) == (text, end)


@pytest.mark.parametrize("kind", MAKERS)
async def test_a_stream_with_broken_compression_is_retryable(kind):
    failure = await stream_failure(MAKERS[kind], b"not gzip", **{"content-encoding": "gzip"})
    assert failure.is_retryable


async def test_a_cancelled_query_for_the_models_is_repeated():
    server = OpenAICompatibleModel("m", "http://127.0.0.1:9/v1")
    server._models = asyncio.ensure_future(asyncio.sleep(60))
    server._models.cancel()
    await asyncio.gather(server._models, return_exceptions=True)
    with pytest.raises(ModelError, match="no answer"):
        await server.find_on_vllm()
    await server.aclose()
