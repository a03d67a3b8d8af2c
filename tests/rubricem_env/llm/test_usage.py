"""Tokens, money and the hard stop."""

import asyncio
import json
from contextlib import nullcontext

import pytest

from rubricem_env.domain.errors import FileFormatError
from rubricem_env.llm.chat import ChatRequest
from rubricem_env.llm.metered import expected_usage
from rubricem_env.llm.prices import PRICES, price_of
from rubricem_env.llm.usage import Meter, SpendLimitReached, SpendLimits, Usage

MODEL = "gemini-2.5-flash"


def test_money_counts_cached_input_at_its_own_price() -> None:
    meter = Meter()
    meter.book(
        "score", MODEL, usage=Usage(calls=1, input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000)
    )
    # 600,000 fresh x 0.30 + 400,000 cached x 0.03 + 100,000 out x 2.50, per million: 0.18 + 0.012 + 0.25
    assert meter.total.dollars == pytest.approx(0.442)


def test_a_model_without_a_price_is_counted_as_unpriced_and_not_as_free() -> None:
    meter = Meter()
    meter.book("score", "house-model", usage=Usage(calls=2, input_tokens=5))
    assert meter.total.unpriced_calls == 2


def test_a_dated_name_has_the_price_of_its_longest_stem() -> None:
    assert price_of("openai/gpt-4.1-mini-2025-04-14") == PRICES["gpt-4.1-mini"]
    assert price_of("gpt-4.1-nano") is None


def test_a_request_is_expected_to_use_its_prompt_its_system_message_and_all_the_output_that_it_allows() -> None:
    expected = expected_usage(ChatRequest(prompt="p" * 60, system="s" * 30, max_output_tokens=7))
    # 90 characters at three a token, and one for what is left of a division.
    assert (expected.calls, expected.input_tokens, expected.output_tokens) == (1, 31, 7)


@pytest.mark.parametrize(("used", "fits"), [(30, True), (50, False)])
async def test_a_call_waits_for_what_others_have_reserved_before_it_is_refused(used: int, fits: bool) -> None:
    meter = Meter(SpendLimits(tokens=100))
    expected = Usage(calls=1, input_tokens=60)

    async def call() -> None:
        async with meter.reserve("score", MODEL, expected=expected):
            pass

    async with meter.reserve("score", MODEL, expected=expected) as record:
        second = asyncio.create_task(call())
        await asyncio.sleep(0)
        assert not second.done()
        record(Usage(calls=1, input_tokens=used))
    # 60 more fit into 100 beside 30, and not beside 50.
    with nullcontext() if fits else pytest.raises(SpendLimitReached, match="50 are used; the limit is 100"):
        await second
    assert meter.total.usage.calls == 1 + fits


async def test_a_call_that_gives_up_waiting_holds_nobody_up() -> None:
    meter = Meter(SpendLimits(calls=2))
    expected = Usage(calls=1)
    order = []

    async def call(name: str) -> None:
        async with meter.reserve("score", MODEL, expected=expected):
            order.append(name)

    async with meter.reserve("score", MODEL, expected=Usage(calls=2)):
        waiting = {name: asyncio.create_task(call(name)) for name in ("first", "second")}
        await asyncio.sleep(0)
        waiting["first"].cancel()
    await asyncio.wait(waiting.values())
    assert order == ["second"]


async def test_a_call_that_failed_counts_as_a_call() -> None:
    meter = Meter()
    with pytest.raises(RuntimeError):
        async with meter.reserve("propose", MODEL, expected=Usage(calls=1, input_tokens=9)):
            raise RuntimeError
    assert meter.by_phase["propose"].usage == Usage(calls=1)


async def test_what_was_spent_survives_a_restart() -> None:
    meter, again = Meter(), Meter(SpendLimits(calls=1))
    meter.book("score", MODEL, usage=Usage(calls=1, input_tokens=10))
    again.load_state_dict(json.loads(json.dumps(meter.state_dict())))
    assert again.total == meter.total
    with pytest.raises(SpendLimitReached):
        await again.reserve("score", MODEL, expected=Usage(calls=1)).__aenter__()


def test_a_malformed_state_is_refused() -> None:
    with pytest.raises(FileFormatError, match="usage meter"):
        Meter().load_state_dict({"score": {"dollars": -1}})
