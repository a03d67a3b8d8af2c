"""A reply without text that ends with `stop` is an outage of the server, and no turn of the policy."""

import pytest

from rubricem_agent.policy.base import Listener, Opening
from rubricem_agent.policy.text import Service, TextConversation
from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.chat import Delta
from rubricem_env.llm.limits.limiter import Limiter, Rates
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.usage import Meter


def conversation(*replies):
    """A policy whose server gives these streams, one after the other."""
    streams = iter(replies)

    async def stream(exchanges, begun, max_tokens):
        for delta in next(streams):
            yield delta

    timing = Timing.real(0)
    service = Service("s", Limiter(Rates(), timing), Meter(), timing, RetryPolicy(attempts=2, initial_delay=0.01))
    return TextConversation(stream, Opening("r", "q"), service=service)


EMPTY = {
    "nothing": [Delta(text="", finish="stop")],
    "no delta": [],
    "space": [Delta(text=" \n", finish="stop")],
    "unseen characters": [Delta(text="\u200b\u2060", finish="stop")],
    "a thought alone": [Delta(text="", thought="hm", finish="stop")],
}


@pytest.mark.parametrize("name", EMPTY)
async def test_an_empty_reply_is_asked_again_and_then_fails(name):
    good = [Delta(text="<answer>60 m</answer>", finish="stop")]
    emission = await conversation(EMPTY[name], good).emit(max_tokens=50, listener=Listener())
    assert emission.text == "<answer>60 m</answer>"
    with pytest.raises(ModelError, match="without text"):
        await conversation(EMPTY[name], EMPTY[name]).emit(max_tokens=50, listener=Listener())
