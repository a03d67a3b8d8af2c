"""What calls cost: tokens and money by phase, and ceilings that stop before they are passed.

What models charge, each price with the day it was written down. A model that is not here has no price, not a free one.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from pydantic import Field, ValidationError

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import FileFormatError, RubricEMError

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


Count = Annotated[int, Field(ge=0)]


class CeilingReached(RubricEMError):
    """A ceiling in calls, tokens or money would be passed. Not a failure of the world: nothing retries it."""


class Usage(Frozen):
    """Tokens of one call, or of many together."""

    calls: Count = 0
    input_tokens: Count = 0
    """Cached ones included."""
    cached_tokens: Count = 0
    output_tokens: Count = 0
    """Thoughts included: they are billed as output."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Ceilings(Frozen):
    """The most that may be spent; None is no ceiling."""

    calls: Count | None = None
    tokens: Count | None = None
    dollars: Annotated[float, Field(ge=0)] | None = None


class Spent(Frozen):
    """What one phase used. `unpriced_calls` cost money that nobody knows: their models are in no price table."""

    usage: Usage = Usage()
    dollars: Annotated[float, Field(ge=0)] = 0.0
    unpriced_calls: Count = 0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            usage=self.usage + other.usage,
            dollars=self.dollars + other.dollars,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
        )


class Receipt:
    """Where a call under way writes what it used; until then its expected use is held back."""

    def __init__(self) -> None:
        self.usage: Usage | None = None

    def record(self, usage: Usage) -> None:
        self.usage = usage


class _Held(NamedTuple):
    calls: int
    tokens: int
    dollars: float


class Meter:
    """Counts what is spent, by phase. Shared by all calls of a run on one event loop.

    A ceiling is never passed by many calls at once, because each call reserves its expected use before it starts.
    """

    def __init__(self, ceilings: Ceilings | None = None, *, prices: Mapping[str, Price] = PRICES) -> None:
        self.ceilings = ceilings or Ceilings()
        self._prices = prices
        self._spent: dict[str, Spent] = {}
        self._held: list[_Held] = []

    @property
    def by_phase(self) -> Mapping[str, Spent]:
        return dict(self._spent)

    @property
    def total(self) -> Spent:
        return sum(self._spent.values(), Spent())

    @contextmanager
    def reserve(self, phase: str, model: str, *, expected: Usage) -> Iterator[Receipt]:
        """Hold back `expected` while a call runs, then book what its receipt says.

        A call that failed without a receipt is booked as one call with no tokens.

        Raises:
            CeilingReached: before the call, when it might pass a ceiling.
        """
        held = _Held(max(1, expected.calls), expected.tokens, self._cost(model, expected) or 0.0)
        self._refuse_beyond_ceilings(held)
        self._held.append(held)
        receipt = Receipt()
        try:
            yield receipt
        finally:
            self._held.remove(held)
            self.book(phase, model, usage=receipt.usage or Usage(calls=1))

    def book(self, phase: str, model: str, *, usage: Usage) -> None:
        """Count what was used already; refuses nothing."""
        cost = self._cost(model, usage)
        unpriced = usage.calls if cost is None and usage.tokens else 0
        booked = Spent(usage=usage, dollars=cost or 0.0, unpriced_calls=unpriced)
        self._spent[phase] = self._spent.get(phase, Spent()) + booked

    def state_dict(self) -> dict[str, Any]:
        """What was spent, as JSON values; ceilings and prices are settings and stay out."""
        return {phase: spent.model_dump(mode="json") for phase, spent in sorted(self._spent.items())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what an earlier run has spent.

        Raises:
            FileFormatError: the state is not one of a meter.
        """
        try:
            self._spent = {phase: Spent.model_validate(spent) for phase, spent in state.items()}
        except ValidationError as cause:
            raise FileFormatError(f"the state of the usage meter is malformed: {cause}") from cause

    def _cost(self, model: str, usage: Usage) -> float | None:
        price = price_of(model, self._prices)
        if price is None:
            return None
        return price.cost(usage.input_tokens, usage.cached_tokens, output_tokens=usage.output_tokens)

    def _refuse_beyond_ceilings(self, held: _Held) -> None:
        total = self.total
        committed = (
            ("calls", total.usage.calls + sum(h.calls for h in self._held), held.calls, self.ceilings.calls),
            ("tokens", total.usage.tokens + sum(h.tokens for h in self._held), held.tokens, self.ceilings.tokens),
            ("dollars", total.dollars + sum(h.dollars for h in self._held), held.dollars, self.ceilings.dollars),
        )
        for unit, used, more, ceiling in committed:
            if ceiling is not None and used + more > ceiling:
                raise CeilingReached(
                    f"the next call may need {more:g} {unit} and {used:g} are used or held; the ceiling is "
                    f"{ceiling:g}. Raise the ceiling to go on."
                )
