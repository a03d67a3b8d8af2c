"""Asking until a reply can be used: what a further try says, and what is said where none could be used."""

import asyncio

import numpy as np
import pytest

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.ask import ask_for
from rubricem_env.llm.chat import ChatReply, ChatRequest
from rubricem_env.llm.json_reply import parse_json_object
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.limits.timing import Timing

DOWN = ModelError("the server answered 503", is_retryable=True)


class Told:
    """A model that gives replies or failures in turn, and hangs after them."""

    name = "m"

    def __init__(self, *script):
        self.script, self.prompts = list(script), []

    async def complete(self, request):
        self.prompts.append(request.prompt)
        if not self.script:
            await asyncio.Event().wait()
        told = self.script.pop(0)
        if isinstance(told, ModelError):
            raise told
        return told if isinstance(told, ChatReply) else ChatReply(text=told, model="m")

    async def aclose(self):
        return None


async def ask(model, **policy):
    async def sleep(seconds):
        return None

    retry = RetryPolicy(**{"attempts": 3, **policy})
    timing = Timing(asyncio.get_running_loop().time, sleep, np.random.default_rng(0))
    return await ask_for(model, ChatRequest("Score it."), parse=parse_json_object, retry=retry, timing=timing)


async def failure_of(*script, **policy):
    with pytest.raises(ModelError) as failure:
        await ask(Told(*script), **policy)
    return str(failure.value)


async def test_no_two_tries_send_the_same_prompt_although_the_replies_are_the_same():
    model = Told("no", "no", "no", '{"a": 1}')
    assert await ask(model, attempts=4) == {"a": 1}
    assert len(set(model.prompts)) == 4
    assert "Your last reply could not be used:" in model.prompts[1]
    assert "Your last 3 replies could not be used:" in model.prompts[3]


async def test_a_thought_without_text_is_told_to_the_model_and_an_outage_is_not():
    thought = ChatReply(text="<think>and on", model="m", finish="length")
    blocked = ChatReply(text="", model="m", finish="blocked")
    model = Told(DOWN, blocked, thought, "{}")
    await ask(model, attempts=4)
    assert model.prompts[:3] == ["Score it."] * 3
    assert "the reply is only a thought at its token limit" in model.prompts[3]


async def test_after_a_time_out_the_reason_says_that_all_replies_were_unreadable():
    said = await failure_of("no", "no", deadline=0.2, initial_delay=0.001)
    assert said.startswith("could not ask m to chat: TimeoutError: no result within 0.2 seconds; the 2 replies before")
    assert "could not be used: " in said
    assert "no detail" not in said


async def test_where_every_try_was_unreadable_their_number_is_said():
    said = await failure_of("no", "no", "no")
    assert said.startswith("3 replies could not be used, the last one: ")


async def test_a_failure_of_the_server_after_unreadable_replies_says_both():
    assert "503; the one reply before could not be used: " in await failure_of("no", DOWN, DOWN)


async def test_a_failure_alone_is_raised_as_it_is():
    assert await failure_of(DOWN, DOWN, DOWN) == str(DOWN)
    assert (await failure_of("no", attempts=1)).count("could not be used") == 0
