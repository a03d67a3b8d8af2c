"""Prices: who says so, of which day, and what the package genai-prices knows."""

import socket
from datetime import date

import pytest

from rubricem_agent.wiring.prices import list_prices
from rubricem_env.llm.prices import PRICES, describe_prices, price_of, with_given

DAY = date(2026, 11, 26)


@pytest.fixture
def library_prices():
    pytest.importorskip("genai_prices", reason="genai-prices is not installed: pip install 'rubricem[prices]'")
    from rubricem_env.llm.library_prices import library_prices

    return library_prices


def test_a_price_says_who_gave_it_and_when():
    prices = with_given({"Mine": (1, 2.5)})
    today = date.today().isoformat()
    assert describe_prices(["gemini-3.1-pro", "house/mine", "unknown", "house/mine"], prices) == [
        "price of gemini-3.1-pro: $2 read, $12 written for a million tokens (our list, 2026-11-22)",
        f"price of house/mine: $1 read, $2.5 written for a million tokens (given, {today})",
    ]
    assert "half for a batch" in str(prices["mine"].batched)


def test_a_given_price_goes_before_every_list():
    prices = with_given({"gpt-4.1": (7, 8)}, list_prices())
    assert price_of("openai/gpt-4.1", prices).input == 7


def test_the_library_and_our_list_agree_on_what_both_have(library_prices):
    found = library_prices(DAY)
    assert set(PRICES) - set(found) == {"gemini-3.1-pro"}
    for name, price in PRICES.items():
        if name in found:
            assert (found[name].input, found[name].output, found[name].cached) == (
                price.input,
                price.output,
                price.cached,
            )


def test_the_price_of_a_day_is_that_days(library_prices):
    # Google's page: $0.75 and $3.75 until the end of 2026.
    now, later = (price_of("gemini-3.8-flash", library_prices(day)) for day in (DAY, date(2027, 1, 2)))
    assert (now.input, now.output, now.as_of) == (0.75, 3.75, DAY)
    assert later.input > now.input
    assert now.source.startswith("genai-prices 0.")


def test_an_open_model_has_no_price_since_its_host_sets_it(library_prices):
    prices = library_prices(DAY)
    assert all(price_of(name, prices) is None for name in ("gpt-oss-120b", "gemma-3", "Qwen/Qwen3-8B"))


def test_the_library_is_asked_before_our_list_and_nothing_is_fetched(library_prices, monkeypatch):
    def refuse(*_arguments, **_options):
        raise AssertionError("a price was fetched")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    list_prices.cache_clear()
    assert price_of("gpt-4.1-2025-04-14", list_prices()).source.startswith("genai-prices")
    assert price_of("gemini-3.1-pro", list_prices()) == PRICES["gemini-3.1-pro"]
    assert price_of("claude-opus-5", list_prices()) is not None
