"""A session with each server that docs/policies.md names: a stream, a whole reply, its models and its refusals.

Nothing here was taken from a live server. The bytes are transcribed by hand from the projects' published schemas,
sources and error texts of 2026: OpenRouter's reference of its API, Ollama's `openai` package, llama.cpp's
`tools/server`, LM Studio's documents, and the OpenAI servers of SGLang 0.5 and vLLM 0.30.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.chat import ChatRequest
from rubricem_env.llm.http_failures import ContextOverflow
from rubricem_env.llm.openai_compatible import MIN_TOKENS, OpenAICompatibleModel
from rubricem_env.llm.usage import Usage
from rubricem_env.testing.loopback import serve_loopback

MODEL = "qwen3"


class Session(NamedTuple):
    """What one server sends."""

    head: dict[str, Any]
    """Beside the choices of each chunk."""
    chunks: tuple[Any, ...]
    """The choices of each chunk; a text is a line as it is."""
    usage: dict[str, Any]
    listed: dict[str, Any]
    """GET models."""
    message: dict[str, Any]
    """Of a whole reply."""
    overflow: dict[str, Any]
    """With status 400."""
    refusal: tuple[int, dict[str, Any], bool]
    """Another refusal, and whether the same request may succeed later."""


def choice(delta, finish=None, **more):
    return [{"index": 0, "delta": delta, "finish_reason": finish, **more}]


def counted(**more):
    return {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19, **more}


def failed(message, code, kind="invalid_request_error", **more):
    return {"error": {"message": message, "type": kind, "param": None, "code": code, **more}}


SESSIONS = {
    "OpenRouter": Session(
        {"id": "gen-1", "provider": "Novita", "model": "qwen/qwen3", "object": "chat.completion.chunk"},
        (
            ": OPENROUTER PROCESSING",
            choice(
                {"role": "assistant", "content": "", "reasoning": "Hm.", "reasoning_details": [{"text": "Hm."}]},
                native_finish_reason=None,
            ),
            ": OPENROUTER PROCESSING",
            choice({"role": "assistant", "content": "Tall ", "reasoning": None}, native_finish_reason=None),
            choice({"role": "assistant", "content": "Fox"}, native_finish_reason=None),
            choice({"role": "assistant", "content": ""}, "stop", native_finish_reason="stop"),
        ),
        counted(
            cost=0.00014,
            prompt_tokens_details={"cached_tokens": 4},
            completion_tokens_details={"reasoning_tokens": 2},
        ),
        {"data": [{"id": MODEL, "name": "Qwen", "context_length": 40960, "pricing": {"prompt": "0.1"}}]},
        {"role": "assistant", "content": "Tall Fox", "refusal": None, "reasoning": "Hm."},
        {
            "error": {
                "message": "This endpoint's maximum context length is 40960 tokens. "
                "However, you requested about 90000.",
                "code": 400,
                "metadata": {"provider_name": None},
            }
        },
        (402, {"error": {"message": "Insufficient credits. Add more using the site.", "code": 402}}, False),
    ),
    "vLLM": Session(
        {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL},
        (
            choice({"role": "assistant", "content": "", "reasoning": None}, logprobs=None),
            choice({"reasoning": "Hm."}, logprobs=None, token_ids=None),
            choice({"content": "Tall "}, logprobs=None, token_ids=None),
            choice({"content": "Fox"}, logprobs=None, token_ids=None),
            choice({"content": ""}, "stop", logprobs=None, stop_reason=None),
        ),
        counted(prompt_tokens_details={"cached_tokens": 4}),
        {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "vllm", "max_model_len": 4096}]},
        {"role": "assistant", "content": "Tall Fox", "refusal": None, "reasoning": "Hm.", "tool_calls": []},
        failed(
            "This model's maximum context length is 4096 tokens. However, your request has 5000.",
            400,
            "BadRequestError",
        ),
        (404, failed("The model `qwen` does not exist.", 404, "NotFoundError"), False),
    ),
    "SGLang": Session(
        {"id": "9f", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "usage": None},
        (
            choice({"role": "assistant", "content": "", "reasoning_content": None}, logprobs=None, matched_stop=None),
            choice({"role": None, "content": None, "reasoning_content": "Hm."}, logprobs=None, matched_stop=None),
            choice({"role": None, "content": "Tall ", "reasoning_content": None}, logprobs=None, matched_stop=None),
            choice({"role": None, "content": "Fox", "reasoning_content": None}, logprobs=None, matched_stop=None),
            choice({"role": None, "content": None, "reasoning_content": None}, "stop", matched_stop=151645),
        ),
        counted(prompt_tokens_details={"cached_tokens": 4}, reasoning_tokens=2),
        {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "sglang", "max_model_len": 4096}]},
        {"role": "assistant", "content": "Tall Fox", "reasoning_content": "Hm.", "tool_calls": None},
        {
            "object": "error",
            "message": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        (503, {"object": "error", "message": "The request queue is full.", "type": "ServiceUnavailable"}, True),
    ),
    "Ollama": Session(
        {"id": "chatcmpl-595", "object": "chat.completion.chunk", "model": MODEL, "system_fingerprint": "fp_ollama"},
        (
            choice({"role": "assistant", "content": "", "reasoning": "Hm."}),
            choice({"role": "assistant", "content": "Tall "}),
            choice({"role": "assistant", "content": "Fox"}),
            choice({"role": "assistant", "content": ""}, "stop"),
        ),
        counted(),
        {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "library"}]},
        {"role": "assistant", "content": "Tall Fox", "reasoning": "Hm."},
        failed("prompt too long; exceeded max context length by 904 tokens", None, "api_error"),
        (404, failed('model "qwen" not found, try pulling it first', None, "not_found_error"), False),
    ),
    "llama.cpp": Session(
        {"id": "chatcmpl-x", "object": "chat.completion.chunk", "model": MODEL, "system_fingerprint": "b7000-abc"},
        (
            choice({"role": "assistant", "content": None}),
            choice({"reasoning_content": "Hm."}),
            choice({"content": "Tall "}),
            choice({"content": "Fox"}),
            choice({}, "stop"),
        ),
        counted(prompt_tokens_details={"cached_tokens": 4}),
        {
            "models": [{"name": MODEL, "type": "model", "capabilities": ["completion"]}],
            "object": "list",
            "data": [{"id": MODEL, "object": "model", "owned_by": "llamacpp", "meta": {"n_ctx_train": 40960}}],
        },
        {"role": "assistant", "content": "Tall Fox", "reasoning_content": "Hm."},
        {
            "error": {
                "code": 400,
                "message": "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 9412,
                "n_ctx": 8192,
            }
        },
        (503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, True),
    ),
    "LM Studio": Session(
        {"id": "chatcmpl-8", "object": "chat.completion.chunk", "model": MODEL, "system_fingerprint": MODEL},
        (
            choice({"role": "assistant", "reasoning_content": "Hm."}, logprobs=None),
            choice({"role": "assistant", "content": "Tall "}, logprobs=None),
            choice({"role": "assistant", "content": "Fox"}, logprobs=None),
            choice({}, "stop", logprobs=None),
        ),
        counted(completion_tokens_details={"reasoning_tokens": 2}),
        {"data": [{"id": MODEL, "object": "model", "owned_by": "organization_owner"}], "object": "list"},
        {"role": "assistant", "content": "Tall Fox", "reasoning_content": "Hm.", "tool_calls": []},
        {
            "error": "Trying to keep the first 5650 tokens when context the overflows. However, the model is loaded "
            "with context length of only 4096 tokens, which is not enough."
        },
        (404, failed('Model "qwen" not found', "model_not_found"), False),
    ),
}  # fmt: skip


def stream_of(session):
    lines = [
        one if isinstance(one, str) else f"data: {json.dumps({**session.head, 'choices': one})}"
        for one in session.chunks
    ]
    last = {**session.head, "choices": [], "usage": session.usage}
    return "\n\n".join([*lines, f"data: {json.dumps(last)}", "data: [DONE]", ""]).encode()


def app_of(session, refusal=None):
    """The server of a session; with a refusal, one that refuses every chat."""

    async def chat(request):
        body = await request.json()
        if refusal is not None:
            return JSONResponse(refusal[1], refusal[0])
        if body.get("stream"):
            assert body["stream_options"] == {"include_usage": True}
            return Response(stream_of(session), media_type="text/event-stream")
        head = {**session.head, "object": "chat.completion"}
        choices = [{"index": 0, "message": session.message, "finish_reason": "stop", "logprobs": None}]
        return JSONResponse({**head, "choices": choices, "usage": session.usage})

    async def models(_):
        return JSONResponse(session.listed)

    return Starlette(
        routes=[Route("/v1/chat/completions", chat, methods=["POST"]), Route("/v1/models", models, methods=["GET"])]
    )


async def talk(session, call, *, refusal=None, name=MODEL):
    with serve_loopback(app_of(session, refusal)) as url:
        model = OpenAICompatibleModel(name, f"{url}/v1", key=SecretStr("canary-key-0123"), timeout=5.0)
        try:
            return await call(model)
        finally:
            await model.aclose()


async def stream(model):
    request = ChatRequest("", "be brief", temperature=0.7, seed=5, max_output_tokens=MIN_TOKENS)
    deltas = model.stream_chat(request, [("user", "q")])
    return [delta async for delta in deltas]


def used(session):
    cached = session.usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    thought = session.usage.get("completion_tokens_details", {}).get("reasoning_tokens", 0)
    return Usage(calls=1, input_tokens=12, cached_tokens=cached, output_tokens=7, reasoning_tokens=thought)


def test_every_server_that_the_page_names_has_a_session():
    page = (Path(__file__).parents[4] / "docs" / "policies.md").read_text(encoding="utf-8")
    table = page.split("## Which server takes which line", 1)[1].split("\n## ", 1)[0]
    named = re.findall(r"^\| ([\w .]+) \| `openai:", table, re.M)
    assert set(named) == set(SESSIONS)


@pytest.mark.parametrize("server", SESSIONS)
async def test_a_stream_is_read_with_its_reasoning_apart_and_its_tokens_counted(server):
    deltas = await talk(SESSIONS[server], stream)
    assert "".join(delta.text for delta in deltas) == "Tall Fox"
    assert "".join(delta.thought for delta in deltas) == "Hm."
    assert [delta.finish for delta in deltas if delta.finish] == ["stop"]
    assert [delta.usage for delta in deltas if delta.usage][-1] == used(SESSIONS[server])


@pytest.mark.parametrize("server", SESSIONS)
async def test_a_whole_reply_is_read_alike(server):
    reply = await talk(SESSIONS[server], lambda model: model.complete(ChatRequest("q")))
    assert (reply.text, reply.thought, reply.finish) == ("Tall Fox", "Hm.", "stop")
    assert reply.usage == used(SESSIONS[server])


@pytest.mark.parametrize("server", SESSIONS)
async def test_a_conversation_that_is_too_long_is_distinguished_from_other_refusals(server):
    session = SESSIONS[server]
    with pytest.raises(ContextOverflow):
        await talk(session, stream, refusal=(400, session.overflow))
    status, body, is_retryable = session.refusal
    with pytest.raises(ModelError) as refused:
        await talk(session, stream, refusal=(status, body))
    assert not isinstance(refused.value, ContextOverflow)
    assert refused.value.is_retryable is is_retryable
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("server", SESSIONS)
async def test_a_wrong_name_is_answered_with_the_names_there_are(server):
    found = await talk(SESSIONS[server], lambda model: model.find_on_vllm())
    assert (found is not None) == (server == "vLLM")
    with pytest.raises(ModelError, match=f"no model 'other'; it has: {MODEL}"):
        await talk(SESSIONS[server], lambda model: model.find_on_vllm(), name="other")


async def test_openrouters_error_in_a_stream_is_a_failure_of_the_server():
    session = SESSIONS["OpenRouter"]
    broken = {**session.head, "error": {"code": "server_error", "message": "Provider disconnected unexpectedly"}}
    last = f"data: {json.dumps({**broken, 'choices': choice({'content': ''}, 'error')})}"
    with pytest.raises(ModelError, match="Provider disconnected unexpectedly") as failure:
        await talk(session._replace(chunks=(*session.chunks[:4], last)), stream)
    assert failure.value.is_retryable
