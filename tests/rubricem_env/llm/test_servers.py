"""The real clients against loopback servers."""

import asyncio
import json

import pytest
from pydantic import BaseModel, SecretStr

from rubricem_env.domain.errors import ModelError
from rubricem_env.judge.model.replies import WireProposal, WireReflectionScores, WireScores
from rubricem_env.llm.ask import ask_once
from rubricem_env.llm.chat import ChatRequest
from rubricem_env.llm.gemini import GeminiModel
from rubricem_env.llm.keys import redactor_of
from rubricem_env.llm.limits.limiter import Limiter, Rates
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.metered import MeteredModel
from rubricem_env.llm.openai_compatible import OpenAICompatibleModel
from rubricem_env.llm.usage import Meter, SpendLimitReached, SpendLimits
from rubricem_env.testing.loopback import free_port, serve_loopback
from rubricem_env.testing.servers import ModelReply, ModelServer

KEY = SecretStr("canary-key-0123456789")
KINDS = ("gemini", "openai")


def connect(kind, url):
    if kind == "gemini":
        return GeminiModel("gemini-3.8-flash", KEY, base_url=url, timeout=5.0)
    return OpenAICompatibleModel("judge-model", f"{url}/v1", key=KEY, timeout=5.0)


async def ask(kind, answer, request=ChatRequest("hello", system="be brief")):  # noqa: B008
    server = ModelServer(answer)
    with serve_loopback(server) as url:
        model = connect(kind, url)
        try:
            return await model.complete(request), server
        finally:
            await model.aclose()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schema", [WireScores, WireProposal, WireReflectionScores])
async def test_a_schema_goes_out_and_text_and_usage_come_back(kind, schema: type[BaseModel]):
    request = ChatRequest("the prompt", system="the system", schema=schema, seed=3)
    reply, server = await ask(kind, lambda _: '{"scores": []}', request)
    (asked,) = server.asked
    assert (asked.prompt, asked.system, asked.key) == ("the prompt", "the system", KEY.get_secret_value())
    assert set(schema.model_fields) <= set(asked.schema["properties"])
    assert (json.loads(reply.text), reply.finish) == ({"scores": []}, "stop")
    # 10 + 10 characters in: five tokens
    assert (reply.usage.calls, reply.usage.input_tokens) == (1, 5)
    # 14 characters out: three tokens, and Gemini's fake thinks 7, which are billed as output.
    assert reply.usage.output_tokens == (10 if kind == "gemini" else 3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("finish", "expected"), [("length", "length"), ("content_filter", "blocked")])
async def test_a_truncated_or_blocked_reply_says_so(kind, finish, expected):
    reply, _ = await ask(kind, lambda _: ModelReply('{"sco', finish=finish))
    assert reply.finish is expected


RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12.5s"}
GOOGLES_429 = {"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": [RETRY_INFO]}}
QUOTING_429 = {"error": {"code": 429, "message": "quota of 'x', 'retryDelay': '900s'", "status": "RESOURCE_EXHAUSTED"}}
LATER = {"retry-after": "7"}
FAILURES = [
    *((ModelReply("slow", status=status, headers=LATER), True, 7.0, "slow") for status in (429, 500, 503)),
    *((ModelReply("no such model", status=status), False, None, str(status)) for status in (400, 401, 404)),
    (ModelReply(raw=b"<html>gateway</html>"), True, None, "check (its|the) address"),
    (ModelReply("x", headers={"content-encoding": "gzip"}), True, None, "no answer.*: DecodingError"),
]


@pytest.mark.parametrize(
    ("kind", "reply", "is_retryable", "wait", "said"),
    [
        *((kind, *failure) for kind in KINDS for failure in FAILURES),
        ("openai", ModelReply(raw=b"<!DOCTYPE html><p>x", status=502), True, None, "502 with a web page in place"),
        ("openai", ModelReply(raw=b'"' + b"x" * 6_000_000), True, None, "more than 5,000,000 bytes"),
        ("gemini", ModelReply(raw=b'"' + b"x" * 21_000_000), True, None, "more than 20,000,000 bytes"),
        ("gemini", ModelReply(status=429, raw=json.dumps(GOOGLES_429).encode()), True, 12.5, "429: quota"),
        ("gemini", ModelReply(status=429, raw=json.dumps(QUOTING_429).encode()), True, None, "429: quota"),
    ],
)
async def test_a_failure_says_whether_and_when_the_same_request_may_succeed(kind, reply, is_retryable, wait, said):
    with pytest.raises(ModelError, match=said) as failure:
        await ask(kind, lambda _: reply)
    assert (failure.value.is_retryable, failure.value.retry_after) == (is_retryable, wait)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_is_not_there_may_come_back(kind):
    model = connect(kind, f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ModelError) as failure:
        await model.complete(ChatRequest("hello"))
    await model.aclose()
    assert failure.value.is_retryable


def chat(content, finish="stop", **message):
    return {"choices": [{"message": {"content": content, **message}, "finish_reason": finish}]}


def generated(text, finish="STOP"):
    return {"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": finish}]}


NO_ANSWERS = {
    "openai": [
        {"choices": []},
        {"choices": None},
        chat(None),
        chat(""),
        chat(" \n"),
        chat(None, "length"),
        chat("", "content_filter"),
        chat("A, by half", "content_filter"),
        chat("A", "abort"),
        chat("A", "error"),
        chat(None, refusal="I cannot help with that."),
        chat(None, "tool_calls", tool_calls=[]),
    ],
    "gemini": [
        {},
        {"promptFeedback": {"blockReason": "SAFETY"}},
        generated(""),
        generated(" ", "MAX_TOKENS"),
        generated("A", "SAFETY"),
        generated("A", "MALFORMED_FUNCTION_CALL"),
        generated("A", "OTHER"),
    ],
}


@pytest.mark.parametrize(("kind", "body"), [(kind, body) for kind in KINDS for body in NO_ANSWERS[kind]])
async def test_a_reply_without_an_answer_of_the_model_is_an_outage(kind, body):
    with serve_loopback(ModelServer(lambda _: ModelReply(raw=json.dumps(body).encode()))) as url:
        model = connect(kind, url)
        with pytest.raises(ModelError) as failure:
            await ask_once(model, ChatRequest("hello"))
        await model.aclose()
    assert failure.value.is_retryable


@pytest.mark.parametrize("finish", ["stop", "eos", None, "length"])
async def test_text_that_the_model_wrote_is_an_answer_also_where_it_is_truncated(finish):
    reply, _ = await ask("openai", lambda _: ModelReply(raw=json.dumps(chat("A", finish)).encode()))
    assert (reply.text, reply.outage) == ("A", "")


def metered(model, **limits):
    timing = Timing.real(0)
    meter = Meter(SpendLimits(**limits))
    return MeteredModel(model, limiter=Limiter(Rates(), timing), meter=meter, redactor=redactor_of([KEY]))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_echoes_the_key_does_not_get_it_into_a_message(kind):
    with serve_loopback(ModelServer(lambda asked: ModelReply(f"bad key {asked.key}", status=401))) as url:
        model = metered(connect(kind, url))
        with pytest.raises(ModelError) as failure:
            await model.complete(ChatRequest("hello"))
        await model.aclose()
    assert "canary" not in f"{failure.value!r} {failure.value.__cause__!r}"
    assert "[redacted]" in str(failure.value)


async def test_a_spending_limit_holds_against_calls_that_start_together():
    server = ModelServer(lambda _: "fine")
    with serve_loopback(server) as url:
        model = metered(connect("openai", url), calls=3)
        results = await asyncio.gather(*(model.complete(ChatRequest("x")) for _ in range(8)), return_exceptions=True)
        await model.aclose()
    assert (sum(isinstance(r, SpendLimitReached) for r in results), len(server.asked)) == (5, 3)


@pytest.mark.parametrize(("status", "is_told"), [(401, True), (403, True), (404, False)])
async def test_a_refused_key_is_answered_with_its_variable(status, is_told):
    with serve_loopback(ModelServer(lambda _: ModelReply("Not yours.", status=status))) as url:
        model = OpenAICompatibleModel("m", f"{url}/v1", key=KEY, key_variable="RUBRICEM_JUDGE_KEY")
        with pytest.raises(ModelError) as failure:
            await model.complete(ChatRequest("hello"))
        await model.aclose()
    assert ("Set RUBRICEM_JUDGE_KEY in the environment" in str(failure.value)) is is_told
