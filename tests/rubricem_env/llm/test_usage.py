"""Tokens, money and the hard stop."""

import json

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


def test_a_limit_counts_what_running_calls_may_still_use() -> None:
    meter = Meter(SpendLimits(tokens=100))
    expected = Usage(calls=1, input_tokens=60)
    with meter.reserve("score", MODEL, expected=expected) as record:
        with pytest.raises(SpendLimitReached, match="60 are used or reserved; the limit is 100"):
            meter.reserve("score", MODEL, expected=expected).__enter__()
        record(Usage(calls=1, input_tokens=30))
    with meter.reserve("score", MODEL, expected=expected):
        pass
    assert meter.total.usage.calls == 2


def test_a_call_that_failed_counts_as_a_call() -> None:
    meter = Meter()
    with pytest.raises(RuntimeError), meter.reserve("propose", MODEL, expected=Usage(calls=1, input_tokens=9)):
        raise RuntimeError
    assert meter.by_phase["propose"].usage == Usage(calls=1)


def test_what_was_spent_survives_a_restart() -> None:
    meter, again = Meter(), Meter(SpendLimits(calls=1))
    meter.book("score", MODEL, usage=Usage(calls=1, input_tokens=10))
    again.load_state_dict(json.loads(json.dumps(meter.state_dict())))
    assert again.total == meter.total
    with pytest.raises(SpendLimitReached):
        again.reserve("score", MODEL, expected=Usage(calls=1)).__enter__()


def test_a_malformed_state_is_refused() -> None:
    with pytest.raises(FileFormatError, match="usage meter"):
        Meter().load_state_dict({"score": {"dollars": -1}})
