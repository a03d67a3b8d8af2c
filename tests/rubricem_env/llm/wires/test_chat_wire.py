"""How a stream of chat chunks may end: with its mark, or with a reason and no mark; anything else breaks off."""

import json

import pytest

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.wires.chat_wire import ChatWire


def chunk(text: str = "", finish: str | None = None) -> str:
    return f"data: {json.dumps({'choices': [{'delta': {'content': text}, 'finish_reason': finish}]})}"


USAGE = f"data: {json.dumps({'choices': [], 'usage': {'prompt_tokens': 5, 'completion_tokens': 2}})}"


async def read(*lines: str):
    async def stream():
        for line in lines:
            yield line
            yield ""

    return [delta async for delta in ChatWire().read_stream(stream())]


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
