"""The prices that the package genai-prices has in it, as a table like our own. Nothing is fetched.

Only models that are served by those who made them: an open model costs what its host asks.
"""

from datetime import UTC, date, datetime, time
from decimal import Decimal

import genai_prices
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelPrice, TieredPrices

from rubricem_env.llm.prices import Price, price_name

_PROVIDERS = ("anthropic", "google", "openai")
"""Those whose protocols we speak."""
_OPEN = ("gemma", "gpt-oss")
"""What they also give away."""
SOURCE = f"genai-prices {genai_prices.__version__}"


def library_prices(day: date) -> dict[str, Price]:
    """The prices of a day by model, for prompts of usual length; models that are not paid by text tokens are left out.

    `as_of` is that day, since the package dates its changes; its version says how old it is.
    """
    noon = datetime.combine(day, time(12), UTC)
    prices: dict[str, Price] = {}
    for provider in get_snapshot().providers:
        for model in provider.models if provider.id in _PROVIDERS else ():
            listed = model.get_prices(noon)
            read, written = _dollars(listed, "input_mtok"), _dollars(listed, "output_mtok")
            if read is None or written is None or model.id.startswith(_OPEN):
                continue
            cached = _dollars(listed, "cache_read_mtok")
            price = Price(input=read, output=written, cached=cached, as_of=day, source=SOURCE)
            # A second provider that serves the same model asks about as much; the maker comes first.
            prices.setdefault(price_name(model.id), price)
    return prices


def _dollars(listed: ModelPrice, key: str) -> float | None:
    """The dollars for a million tokens; of a price in tiers, the first."""
    value: Decimal | TieredPrices | None = getattr(listed, key)
    if value is None:
        return None
    return float(value.base if isinstance(value, TieredPrices) else value)
