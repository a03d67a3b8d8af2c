"""The dated price table of `models.json`.

A model that is not in the table has an unknown price, not a price of zero.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.inputs import package_text

Dollars = Annotated[float, Field(ge=0)]
_MILLION = 1_000_000


class Price(Frozen):
    """Dollars for a million tokens, standard tier, prompts of usual length."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None
    """The price of cached input. None means that it costs as much as any."""
    as_of: date
    source: Text = "our list"
    """Who says so."""

    @property
    def batched(self) -> "Price":
        """What a batch job pays: half, at Gemini as at OpenAI; cached input is not cheaper still."""
        source = f"{self.source}, half for a batch"
        return Price(input=self.input / 2, output=self.output / 2, as_of=self.as_of, source=source)

    def __str__(self) -> str:
        return f"${self.input:g} read, ${self.output:g} written for a million tokens ({self.source}, {self.as_of})"

    def cost(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        """Dollars; `input_tokens` include the cached ones."""
        cached_price = self.input if self.cached is None else self.cached
        fresh = max(0, input_tokens - cached_tokens)
        return (fresh * self.input + cached_tokens * cached_price + output_tokens * self.output) / _MILLION


_MODELS: Mapping[str, Any] = json.loads(package_text("rubricem_env.llm", "models.json"))
FLASH = "gemini-3.8-flash"
"""The default of google_search and of the 8B configs' judge: the successor of the paper's Gemini 3 Flash.

Its price holds until 2026-12-31, as its page says.
"""
PRICES: Mapping[str, Price] = MappingProxyType(
    TypeAdapter(dict[str, Price]).validate_python(_MODELS["prices"], strict=False)
)
"""The models that are known by name, with their list prices on the day they were checked; prices move, and a run passes
its own table where they have."""
SHUT_DOWN: Mapping[str, Sequence[str]] = MappingProxyType(_MODELS["shut_down"])
"""The day on which a model was or will be shut down, and its provider's successor (their pages, November 2026)."""


def price_name(model: str) -> str:
    """The name under which a model stands in a table of prices."""
    return model.rpartition("/")[2].casefold()


def with_given(
    given: Mapping[str, tuple[float, float]], prices: Mapping[str, Price] = PRICES, *, source: str = "given"
) -> Mapping[str, Price]:
    """The prices, with these dollars for a million tokens read and written in place of a model's own."""
    own = {name: Price(input=a, output=b, as_of=date.today(), source=source) for name, (a, b) in given.items()}
    return {**prices, **{price_name(name): price for name, price in own.items()}}


_VERSION = re.compile("-2|-0|-preview|-latest|$")
"""What follows the stem of a name."""


def describe_prices(models: Iterable[str], prices: Mapping[str, Price]) -> list[str]:
    """A sentence for each model that has a price: how much, who says so, and of which day."""
    found = ((model, price_of(model, prices)) for model in dict.fromkeys(models) if model)
    return [f"price of {model}: {price}" for model, price in found if price is not None]


def price_of(model: str, prices: Mapping[str, Price] = PRICES) -> Price | None:
    """The price of a model.

    A dated or preview name, such as gpt-4.1-2025-04-14, has the price of its longest known stem.
    """
    name = price_name(model)
    stems = [known for known in prices if name.startswith(known) and _VERSION.match(name, len(known))]
    return prices[max(stems, key=len)] if stems else None
