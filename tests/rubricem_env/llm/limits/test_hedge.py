"""A second request for a slow reply: when it is sent, which reply is taken, and what both cost."""

import asyncio

import pytest

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.chat import ChatReply, ChatRequest
from rubricem_env.llm.limits.limiter import Limiter, Rates
from rubricem_env.llm.metered import MeteredModel
from rubricem_env.llm.usage import Meter, SpendLimits, Usage
from tests.fakes import ManualTime, ScriptedModel

REQUEST = ChatRequest("a" * 299, purpose="score", max_output_tokens=50)
"""At three characters a token, 100 tokens are reserved for it, and 50 for its reply."""


class Server:
    """Each call waits for a turn of its own: a reply, or a failure, given by the test."""

    def __init__(self, calls):
        self.turns = [asyncio.get_running_loop().create_future() for _ in range(calls)]
        self.asked = 0
        self.cancelled = []

    async def answer(self, _):
        number, self.asked = self.asked, self.asked + 1
        try:
            return await self.turns[number]
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise


def reply(text):
    return ChatReply(text=text, model="scripted", usage=Usage(calls=1, input_tokens=70, output_tokens=5))


class Hedged:
    """A model over two calls of a server, a second request after 3 s, and a pause that the test ends."""

    def __init__(self, *, rates=None, limits=None):
        self.server = Server(2)
        self.meter = Meter(limits)
        self.waited = []
        self.pause = asyncio.Event()
        limiter = Limiter(rates or Rates(), ManualTime().timing())
        model = ScriptedModel(self.server.answer)
        self.model = MeteredModel(model, limiter=limiter, meter=self.meter, hedge_after=3.0, sleep=self._sleep)
        self.limiter = limiter

    async def _sleep(self, seconds):
        self.waited.append(seconds)
        await self.pause.wait()

    def begin(self):
        return asyncio.create_task(self.model.complete(REQUEST))


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_reply_in_time_costs_one_call():
    hedged = Hedged()
    hedged.server.turns[0].set_result(reply("first"))
    assert (await hedged.begin()).text == "first"
    assert (hedged.server.asked, hedged.meter.total.usage.calls) == (1, 1)


async def test_after_the_time_the_request_is_sent_again_and_the_first_reply_is_taken():
    hedged = Hedged()
    asked = hedged.begin()
    await settle()
    hedged.pause.set()
    await settle()
    hedged.server.turns[1].set_result(reply("second"))
    assert (await asked).text == "second"
    assert (hedged.waited, hedged.server.cancelled) == ([3.0], [0])


async def test_both_calls_are_booked_the_cancelled_one_with_its_prompt():
    hedged = Hedged()
    asked = hedged.begin()
    hedged.pause.set()
    await settle()
    hedged.server.turns[1].set_result(reply("second"))
    await asked
    # 70 tokens were reported for the reply that came; 100 were reserved for the prompt of the other.
    assert hedged.meter.by_phase["score"].usage == Usage(calls=2, input_tokens=170, output_tokens=5)


async def test_a_request_that_waits_for_its_turn_is_not_sent_again():
    hedged = Hedged(rates=Rates(concurrency=1))
    hedged.pause.set()
    async with hedged.limiter.slot(1):
        asked = hedged.begin()
        await settle()
        assert (hedged.waited, hedged.server.asked) == ([], 0)
    await settle()
    hedged.server.turns[0].set_result(reply("first"))
    assert (await asked).text == "first"


async def test_a_failure_before_the_second_request_is_raised_at_once():
    hedged = Hedged()
    hedged.server.turns[0].set_result(ModelError("the server is busy", is_retryable=True))
    with pytest.raises(ModelError, match="busy"):
        await hedged.begin()
    assert hedged.server.asked == 1


@pytest.mark.parametrize("failing", [0, 1])
async def test_where_one_of_two_requests_fails_the_other_is_waited_for(failing):
    hedged = Hedged()
    hedged.pause.set()
    asked = hedged.begin()
    await settle()
    hedged.server.turns[failing].set_result(ModelError("the server is busy", is_retryable=True))
    await settle()
    hedged.server.turns[1 - failing].set_result(reply("other"))
    assert (await asked).text == "other"


async def test_where_both_fail_the_failure_of_the_first_is_raised():
    hedged = Hedged()
    hedged.pause.set()
    asked = hedged.begin()
    await settle()
    for turn, message in zip(hedged.server.turns, ("first", "second"), strict=True):
        turn.set_result(ModelError(message))
    with pytest.raises(ModelError, match="first"):
        await asked


async def test_a_limit_on_spending_stops_the_second_request_and_not_the_first():
    hedged = Hedged(limits=SpendLimits(calls=1))
    hedged.pause.set()
    asked = hedged.begin()
    await settle()
    hedged.server.turns[0].set_result(reply("first"))
    assert (await asked).text == "first"
    assert hedged.meter.total.usage.calls == 1


async def test_a_caller_that_gives_up_cancels_both():
    hedged = Hedged()
    hedged.pause.set()
    asked = hedged.begin()
    await settle()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert sorted(hedged.server.cancelled) == [0, 1]
