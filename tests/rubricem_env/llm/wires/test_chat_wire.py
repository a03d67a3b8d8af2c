"""How a stream of chat chunks may end: with its mark, or with a reason and no mark; anything else breaks off."""

import json

import pytest

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.wires.chat_wire import DROPPED, ChatWire


def chunk(text: str = "", finish: str | None = None) -> str:
    return f"data: {json.dumps({'choices': [{'delta': {'content': text}, 'finish_reason': finish}]})}"


USAGE = f"data: {json.dumps({'choices': [], 'usage': {'prompt_tokens': 5, 'completion_tokens': 2}})}"


async def read(*lines: str, wire: ChatWire | None = None):
    async def stream():
        for line in lines:
            yield line
            yield ""

    return [delta async for delta in (wire or ChatWire()).read_stream(stream())]


@pytest.mark.parametrize(
    "end",
    [
        [chunk(finish="stop"), "data: [DONE]"],
        [chunk(finish="stop")],  # transformers serve
        [chunk(finish="stop"), USAGE],  # the same, asked for the usage
        ["data: [DONE]"],
    ],
)
async def test_a_stream_ends_with_its_mark_or_with_a_reason(end):
    deltas = await read(chunk("Tall "), chunk("Fox"), *end)
    assert "".join(delta.text for delta in deltas) == "Tall Fox"


async def test_usage_after_the_reason_counts_without_a_mark():
    *_, last = await read(chunk("Fox"), chunk(finish="length"), USAGE)
    assert (last.usage.input_tokens, last.usage.output_tokens) == (5, 2)


async def test_a_stream_that_breaks_off_without_a_reason_is_no_reply():
    with pytest.raises(ModelError, match="before its end mark") as broken:
        await read(chunk("Tall "), USAGE)
    assert broken.value.is_retryable


@pytest.mark.parametrize(("begun", "said"), [([], "without a reply"), ([chunk("Tall ")], "in its midst")])
async def test_a_stream_that_llama_cpp_python_drops_for_another_request_is_no_reply(begun, said):
    # Its event publisher: on another request it sends the end mark after the chunk at hand.
    role = f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'role': 'assistant'}, 'finish_reason': None}]})}"
    wire = ChatWire()
    await read(role, chunk("Tall "), chunk("Fox"), chunk(finish="stop"), "data: [DONE]", wire=wire)
    with pytest.raises(ModelError, match=f"{DROPPED}, {said}") as dropped:
        await read(role, *begun, "data: [DONE]", wire=wire)
    assert dropped.value.is_retryable
