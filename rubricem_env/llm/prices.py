"""What models charge, each price with the day it was written down. A model that is not here has no price, not a free one."""

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen

Dollars = Annotated[float, Field(ge=0)]
_MILLION = 1_000_000


class Price(Frozen):
    """Dollars for a million tokens, standard tier, prompts of usual length."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None
    """None: cached input costs as much as any."""
    as_of: date

    def cost(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        """Dollars; `input_tokens` include the cached ones."""
        cached_price = self.input if self.cached is None else self.cached
        fresh = max(0, input_tokens - cached_tokens)
        return (fresh * self.input + cached_tokens * cached_price + output_tokens * self.output) / _MILLION


_AS_OF = date(2025, 12, 20)

PRICES: Mapping[str, Price] = MappingProxyType(
    {
        "gemini-2.5-flash-lite": Price(input=0.10, output=0.40, cached=0.01, as_of=_AS_OF),
        "gemini-2.5-flash": Price(input=0.30, output=2.50, cached=0.03, as_of=_AS_OF),
        "gemini-2.5-pro": Price(input=1.25, output=10.00, cached=0.125, as_of=_AS_OF),
        "gemini-3-flash": Price(input=0.50, output=3.00, cached=0.05, as_of=_AS_OF),
        "gemini-3-pro": Price(input=2.00, output=12.00, cached=0.20, as_of=_AS_OF),
        "gpt-4.1": Price(input=2.00, output=8.00, cached=0.50, as_of=_AS_OF),
        "gpt-4.1-mini": Price(input=0.40, output=1.60, cached=0.10, as_of=_AS_OF),
        "gpt-4o-mini": Price(input=0.15, output=0.60, cached=0.075, as_of=_AS_OF),
    }
)
"""List prices as known on the date given; prices move, and a run passes its own table where they have."""


def price_of(model: str, prices: Mapping[str, Price] = PRICES) -> Price | None:
    """The price of a model; a dated or preview name, such as gpt-4.1-2025-04-14, has that of its longest known stem."""
    name = model.rpartition("/")[2].casefold()
    stems = [
        known
        for known in prices
        if name == known or name.startswith((f"{known}-2", f"{known}-0", f"{known}-preview", f"{known}-latest"))
    ]
    return prices[max(stems, key=len)] if stems else None
