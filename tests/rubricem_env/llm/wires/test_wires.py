"""The Responses API and Anthropic's messages as their servers answer, and parameters that models refuse."""

import json
import logging

import pytest
from pydantic import BaseModel, SecretStr

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.chat import ChatRequest
from rubricem_env.llm.openai_compatible import OpenAICompatibleModel
from rubricem_env.llm.thoughts import without_thoughts
from rubricem_env.llm.usage import Usage
from rubricem_env.llm.wires.chat_wire import ChatWire
from rubricem_env.llm.wires.messages_wire import MessagesWire
from rubricem_env.llm.wires.responses_wire import ResponsesWire
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelReply, ModelServer

KEY = SecretStr("canary-key-0123456789")


class Shape(BaseModel):
    score: int


async def use(wire, answer, call, *, model="a-model"):
    """What the call returns, and the requests that the server got."""
    server = ModelServer(answer)
    with serve_loopback(server) as url:
        client = OpenAICompatibleModel(model, f"{url}/v1", key=KEY, timeout=5.0, wire=wire)
        try:
            return await call(client), server.asked
        finally:
            await client.aclose()


def whole(content):
    return lambda _: ModelReply(raw=json.dumps(content).encode())


def events(*contents):
    lines = "".join(f"event: {each.get('type')}\ndata: {json.dumps(each)}\n\n" for each in contents)
    return lambda _: ModelReply(raw=lines.encode())


def complete(request):
    return lambda client: client.complete(request)


async def stream(client):
    messages = [("user", "q"), ("assistant", "a"), ("user", "o")]
    request = ChatRequest("", "be brief", temperature=0.7, seed=5, max_output_tokens=100)
    return [delta async for delta in client.stream_chat(request, messages)]


RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "model": "gpt-5-2026",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "It is four."}]},
        {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [
                {"type": "output_text", "text": '{"score"', "annotations": []},
                {"type": "output_text", "text": ": 4}"},
            ],
        },
    ],
    "usage": {
        "input_tokens": 75,
        "input_tokens_details": {"cached_tokens": 64},
        "output_tokens": 118,
        "output_tokens_details": {"reasoning_tokens": 110},
        "total_tokens": 193,
    },
}


async def test_a_response_is_read_without_its_reasoning():
    request = ChatRequest("hello", system="be brief", schema=Shape, temperature=0.0, max_output_tokens=50)
    reply, (asked,) = await use(ResponsesWire(), whole(RESPONSE), complete(request))
    assert (reply.text, reply.thought, reply.finish) == ('{"score": 4}', "It is four.", "stop")
    assert reply.model == "gpt-5-2026"
    assert reply.usage == Usage(calls=1, input_tokens=75, cached_tokens=64, output_tokens=118, reasoning_tokens=110)
    assert asked.path == "/v1/responses"
    assert asked.key == KEY.get_secret_value()
    assert asked.body["input"] == [{"role": "user", "content": "hello"}]
    assert (asked.body["instructions"], asked.body["max_output_tokens"], asked.body["store"]) == ("be brief", 50, False)
    assert asked.body["text"]["format"]["schema"]["required"] == ["score"]
    assert "seed" not in asked.body


@pytest.mark.parametrize(
    ("change", "finish"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "blocked"),
        ({"status": "cancelled"}, "other"),
        ({"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]}, "blocked"),
    ],
)
async def test_a_response_says_why_it_ends(change, finish):
    reply, _ = await use(ResponsesWire(), whole(RESPONSE | change), complete(ChatRequest("q")))
    assert reply.finish == finish
    assert reply.outage or finish == "length"


@pytest.mark.parametrize("wire", [ResponsesWire(), MessagesWire()])
@pytest.mark.parametrize("content", [{}, [], {"output": 3, "content": 3}, {"output": [3], "content": [3]}, "x", None])
async def test_what_is_no_reply_is_a_failure_of_the_server(wire, content):
    with pytest.raises(ModelError) as failure:
        await use(wire, whole(content), complete(ChatRequest("q")))
    assert failure.value.is_retryable


async def test_a_streamed_response_is_read_to_its_end():
    answer = events(
        {"type": "response.created", "response": {"status": "in_progress"}},
        {"type": "response.reasoning_summary_text.delta", "delta": "Hm. "},
        {"type": "response.output_text.delta", "delta": "Tall "},
        {"type": "response.output_text.delta", "delta": "Fox"},
        {"type": "response.output_text.done", "text": "Tall Fox"},
        {"type": "response.completed", "response": RESPONSE},
    )
    deltas, (asked,) = await use(ResponsesWire(), answer, stream)
    assert "".join(delta.text for delta in deltas) == "Tall Fox"
    assert "".join(delta.thought for delta in deltas) == "Hm. "
    assert (deltas[-1].finish, deltas[-1].usage.cached_tokens) == ("stop", 64)
    roles = [(each["role"], each["content"]) for each in asked.body["input"]]
    assert roles == [("user", "q"), ("assistant", "a"), ("user", "o")]
    assert (asked.body["stream"], asked.body["max_output_tokens"], asked.body["temperature"]) == (True, 100, 0.7)


MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-9",
    "content": [{"type": "thinking", "thinking": "It is four.", "signature": "x"}, {"type": "text", "text": "four"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 300,
        "output_tokens": 7,
    },
}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>a</think> b", "b"),
        ("<think>a</think><think>c</think>b", "b"),
        ("a thought</think> b", "b"),
        ("<think>never closed", ""),
        ('{"said": "a </think> tag"}', '{"said": "a </think> tag"}'),
        (' ["</think>"]', ' ["</think>"]'),
        ("```json\n</think>", "```json\n</think>"),
        ("says <think> and </think>", "says <think> and </think>"),
    ],
)
def test_a_thought_is_left_out_and_an_answer_that_holds_its_tag_is_not_cut(text, left):
    assert without_thoughts(text) == left


async def test_a_message_is_read_without_its_thinking():
    request = ChatRequest("hello", system="be brief", schema=Shape, temperature=1.5, seed=3, max_output_tokens=50)
    reply, (asked,) = await use(MessagesWire(), whole(MESSAGE), complete(request))
    assert (reply.text, reply.thought, reply.finish, reply.model) == ("four", "It is four.", "stop", "claude-9")
    # 10 + 20 + 300 were read, of which 300 from the cache.
    assert reply.usage == Usage(calls=1, input_tokens=330, cached_tokens=300, output_tokens=7)
    assert asked.path == "/v1/messages"
    assert asked.key == ""
    expected = {"model": "a-model", "system": "be brief", "temperature": 1.0, "max_tokens": 50}
    assert asked.body == {**expected, "messages": [{"role": "user", "content": "hello"}]}


async def test_anthropics_key_and_version_are_headers():
    seen = {}

    async def app(scope, receive, send):
        seen.update({name.decode(): value.decode() for name, value in scope["headers"]})
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(MESSAGE).encode()})

    with serve_loopback(app) as url:
        client = OpenAICompatibleModel("m", url, key=KEY, timeout=5.0, wire=MessagesWire())
        await client.complete(ChatRequest("q"))
        await client.aclose()
    assert (seen["x-api-key"], seen["anthropic-version"]) == (KEY.get_secret_value(), "2023-06-01")
    assert "authorization" not in seen


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("max_tokens", "length"), ("refusal", "blocked"), ("pause_turn", "other"), ("tool_use", "other"), (None, "other")],
)
async def test_a_message_says_why_it_ends(reason, finish):
    reply, _ = await use(MessagesWire(), whole(MESSAGE | {"stop_reason": reason}), complete(ChatRequest("q")))
    assert reply.finish == finish


async def test_a_streamed_message_is_read_to_its_end():
    answer = events(
        {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Tall "}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Fox"}},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 42}},
        {"type": "message_stop"},
    )
    deltas, _ = await use(MessagesWire(), answer, stream)
    assert "".join(delta.text for delta in deltas) == "Tall Fox"
    assert "".join(delta.thought for delta in deltas) == "Hm."
    assert deltas[-1].finish == "length"
    assert deltas[-1].usage == Usage(calls=1, input_tokens=330, cached_tokens=300, output_tokens=42)


THOUGHT = {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Hm."}}
TEXT = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}
ENDED = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]


@pytest.mark.parametrize(
    ("wire", "sent", "said"),
    [
        (MessagesWire(), [TEXT], "ended before its end mark"),
        (MessagesWire(), [TEXT, {"type": "message_delta", "delta": [1]}], "not one of messages"),
        (ResponsesWire(), [{"type": "response.completed", "response": [1]}], "not one of responses"),
        (MessagesWire(), [TEXT, {"type": "message_stop"}], "ended before its end mark"),
        (MessagesWire(), [THOUGHT, *ENDED], "a thought and no text"),
        (MessagesWire(), ENDED, "no text"),
        (MessagesWire(), [TEXT, {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}], "busy"),
        (
            MessagesWire(),
            [TEXT, {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}}, ENDED[1]],
            "before the",
        ),
        (ResponsesWire(), [{"type": "response.output_text.delta", "delta": "x"}], "ended before its end mark"),
        (ResponsesWire(), [{"type": "response.completed", "response": RESPONSE}], "no text"),
        (ResponsesWire(), [{"type": "response.failed", "response": {"error": {"message": "busy"}}}], "busy"),
        (ResponsesWire(), [{"type": "error", "code": "x", "message": "busy"}], "busy"),
        (
            ResponsesWire(),
            [{"type": "response.incomplete", "response": {"status": "incomplete"}}],
            "before the model did",
        ),
    ],
)
async def test_a_stream_that_fails_is_a_failure_of_the_server(wire, sent, said):
    with pytest.raises(ModelError, match=said) as failure:
        await use(wire, events(*sent), stream)
    assert failure.value.is_retryable


async def test_a_refusal_in_a_stream_is_no_text():
    sent = [
        {"type": "response.refusal.delta", "delta": "I cannot"},
        {"type": "response.completed", "response": RESPONSE},
    ]
    server = ModelServer(events(*sent))
    with serve_loopback(server) as url:
        client = OpenAICompatibleModel("m", url, timeout=5.0, wire=ResponsesWire())
        deltas = client.stream_chat(ChatRequest("", temperature=None, max_output_tokens=10), [("user", "q")])
        first = await anext(deltas)
        await deltas.aclose()
        await client.aclose()
    assert (first.text, first.finish) == ("", "blocked")


def refusal(message):
    return ModelReply(status=400, text=message)


class Picky:
    """A reasoning model: it refuses what it does not take, in OpenAI's words, and then answers."""

    def __init__(self):
        self.bodies = []

    def __call__(self, request):
        body = request.body
        self.bodies.append(body)
        if "max_tokens" in body:
            return refusal(
                "Unsupported parameter: 'max_tokens' is not supported with this model. "
                "Use 'max_completion_tokens' instead."
            )
        if "temperature" in body:
            return refusal(
                "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is "
                "supported."
            )
        return "four"


async def test_what_a_model_refuses_is_learned_once(caplog):
    picky = Picky()

    async def twice(client):
        await client.complete(ChatRequest("q", max_output_tokens=50))
        return await client.complete(ChatRequest("again", max_output_tokens=50))

    with caplog.at_level(logging.WARNING):
        reply, _ = await use(ChatWire(), picky, twice, model="picky-1")
    assert reply.text == "four"
    assert len(picky.bodies) == 4
    assert picky.bodies[-1]["max_completion_tokens"] == 50
    assert not {"max_tokens", "temperature"} & set(picky.bodies[-1])
    assert [record.getMessage() for record in caplog.records] == [
        "picky-1 does not take max_tokens: max_completion_tokens is sent in its place",
        "picky-1 does not take temperature: it is left out",
    ]


async def test_a_stream_learns_as_well():
    picky = Picky()
    deltas, _ = await use(ChatWire(), picky, stream, model="picky-2")
    assert "".join(delta.text for delta in deltas) == "four"
    assert picky.bodies[-1]["max_completion_tokens"] == 100


@pytest.mark.parametrize("takes_object", [True, False])
async def test_a_schema_that_llama_cpp_python_refuses_with_a_server_error_is_sent_in_its_form(takes_object, caplog):
    said = (
        "[{'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), 'msg': \"Input should be 'text' or "
        "'json_object'\", 'input': 'json_schema', 'ctx': {'expected': \"'text' or 'json_object'\"}}]"
    )
    bodies = []

    def answer(request):
        bodies.append(request.body)
        shape = request.body.get("response_format")
        is_refused = shape and not (takes_object and shape["type"] == "json_object")
        return ModelReply(status=500, text=said) if is_refused else "four"

    request = ChatRequest("q", schema=Usage)
    reply, _ = await use(ChatWire(), answer, complete(request), model=f"llama-cpp-{takes_object}")
    assert reply.text == "four"
    shape = {"type": "json_object", "schema": Usage.model_json_schema()}
    assert bodies[1]["response_format"] == shape
    assert len(bodies) == (2 if takes_object else 3)
    if not takes_object:
        assert "response_format" not in bodies[2]
        assert caplog.records[-1].getMessage().endswith("does not take response_format: it is left out")


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 9000. This model supports at most 4096.",
        "the temperature must be below 2",
        "bad request",
    ],
)
async def test_another_refusal_is_a_refusal(message):
    with pytest.raises(ModelError, match=message[:20]) as failure:
        await use(ChatWire(), lambda _: refusal(message), complete(ChatRequest("q")), model=message[:9])
    assert not failure.value.is_retryable


async def test_a_server_that_refuses_everything_is_not_asked_for_ever():
    asked = []

    def refuses(request):
        asked.append(request)
        return refusal("Unsupported parameter: 'seed', 'temperature', 'max_tokens', 'text' and more")

    with pytest.raises(ModelError, match="Unsupported"):
        await use(ChatWire(), refuses, complete(ChatRequest("q", seed=1)), model="never")
    # As it is, without the temperature, without the seed.
    assert len(asked) == 3


async def test_reasoning_content_of_a_chat_is_kept_apart():
    message = {"role": "assistant", "content": "four", "reasoning_content": "Two and two."}
    usage = {"prompt_tokens": 3, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 8}}
    content = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    reply, _ = await use(ChatWire(), whole(content), complete(ChatRequest("q")))
    assert (reply.text, reply.thought, reply.usage.reasoning_tokens) == ("four", "Two and two.", 8)
