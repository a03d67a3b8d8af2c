"""What calls cost: tokens and money by phase, and spending limits."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import reduce
from typing import Any, TypeAlias

from rubricem_env.domain.base import Count, Frozen
from rubricem_env.domain.errors import RubricEMError
from rubricem_env.domain.inputs import validating
from rubricem_env.domain.settings import Settings
from rubricem_env.llm.limits.deadline import stand_still
from rubricem_env.llm.prices import PRICES, Dollars, Price, price_of


class SpendLimitReached(RubricEMError):
    """The next call might pass a limit in calls, tokens or money. It is never retried."""


class Usage(Frozen):
    """Tokens of one call, or of many together."""

    calls: Count = 0
    input_tokens: Count = 0
    """The tokens of the input, cached ones included."""
    cached_tokens: Count = 0
    output_tokens: Count = 0
    """The tokens of the output. Thoughts are included, because they are billed as output."""
    reasoning_tokens: Count = 0
    """Those of the output that were thoughts, where the server says."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(**{name: count + getattr(other, name) for name, count in self})

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class SpendLimits(Settings):
    """The most that may be spent; None means no limit."""

    calls: Count | None = None
    tokens: Count | None = None
    dollars: Dollars | None = None

    def share(self, parts: int) -> "SpendLimits":
        """Each part's share; at least one call and one token."""
        counts = {name: whole and max(1, whole // parts) for name, whole in self if name != "dollars"}
        return SpendLimits(**counts, dollars=self.dollars and self.dollars / parts)


class Spent(Frozen):
    """What one phase used. The price of `unpriced_calls` is unknown: their models are in no price table."""

    usage: Usage = Usage()
    dollars: Dollars = 0.0
    unpriced_calls: Count = 0


_Sums: TypeAlias = dict[str, Any]
"""A `Spent` as numbers by name: these are added with each call, and a model would check all its parts each time."""


def _added(first: _Sums, second: _Sums) -> _Sums:
    return {name: amount + second[name] for name, amount in first.items()}


def _spent(sums: _Sums) -> Spent:
    counts = {name: sums[name] for name in Usage.model_fields}
    return Spent(usage=Usage(**counts), dollars=sums["dollars"], unpriced_calls=sums["unpriced_calls"])


_NOTHING: _Sums = {**dict(Usage()), "dollars": 0.0, "unpriced_calls": 0}


class Meter:
    """Counts what is spent, by phase. Shared by all calls of a run on one event loop.

    Concurrent calls together never pass a limit, because each call reserves its expected use before it starts. A call
    for which there is room but for what others have reserved waits until they return what they did not use.
    """

    def __init__(self, limits: SpendLimits | None = None, *, prices: Mapping[str, Price] = PRICES) -> None:
        self.limits = limits or SpendLimits()
        self._is_limited = self.limits != SpendLimits()
        self._prices = prices
        self._price_of: dict[str, Price | None] = {"": None}
        """What `price_of` said of each model so far."""
        self._spent: dict[str, _Sums] = {}
        self._reserved: dict[object, _Sums] = {}
        """What each running call has reserved. It is empty where there are no limits, since nothing asks for it."""
        self._waiting: list[asyncio.Future[None]] = []
        """One for each call that waits for the reservations of others."""

    @property
    def by_phase(self) -> Mapping[str, Spent]:
        return {phase: _spent(sums) for phase, sums in self._spent.items()}

    @property
    def priced(self) -> Mapping[str, Price]:
        """The price of each model that was paid for."""
        return {model: price for model, price in self._price_of.items() if price is not None}

    @property
    def total(self) -> Spent:
        return _spent(reduce(_added, self._spent.values(), _NOTHING))

    @asynccontextmanager
    async def reserve(
        self, phase: str, model: str, *, expected: Usage, fee: float = 0.0
    ) -> AsyncIterator[Callable[[Usage], None]]:
        """Reserve `expected` and a flat `fee` in dollars while a call runs, then book what the call records.

        A call that fails before it records anything is booked as one call without tokens and fee. The clock of the
        call's retries stands still while it waits for room.

        Raises:
            SpendLimitReached: before the call, when it might pass a limit even if no other call ran.
        """
        call = object()
        recorded = list[Usage]()
        if self._is_limited:
            self._reserved[call] = await self._room(model, expected=expected, fee=fee)
        try:
            yield recorded.append
        finally:
            self._reserved.pop(call, None)
            usage = recorded[-1] if recorded else Usage(calls=1)
            self.book(phase, model, usage=usage, fee=fee if recorded else 0.0)
            waiting, self._waiting = self._waiting, []
            for turn in waiting:
                if not turn.done():
                    turn.set_result(None)

    async def _room(self, model: str, *, expected: Usage, fee: float) -> _Sums:
        """What the call would cost, as soon as no limit is passed with all that is reserved."""
        while True:
            needed = self.require(model, expected=expected, fee=fee)
            if self._excess(needed, [*self._spent.values(), *self._reserved.values()]) is None:
                return needed
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            with stand_still():
                await turn

    def require(self, model: str, *, expected: Usage, fee: float = 0.0) -> _Sums:
        """What so much use would cost; raises SpendLimitReached where it might pass a limit if no other call ran."""
        needed = self._priced(model, expected, fee) | {"calls": max(1, expected.calls)}
        if (excess := self._excess(needed, self._spent.values())) is not None:
            raise SpendLimitReached(excess)
        return needed

    def _excess(self, needed: _Sums, committed: Iterable[_Sums]) -> str | None:
        """Which limit would be passed if this came to what is committed, as a sentence; None where none is."""
        before = reduce(_added, committed, _NOTHING)
        for unit, limit in self.limits:
            names = ("input_tokens", "output_tokens") if unit == "tokens" else (unit,)
            used, more = (sum(sums[name] for name in names) for sums in (before, needed))
            if limit is not None and used + more > limit:
                return (
                    f"the next call may need {more:g} {unit} and {used:g} are used; the limit is {limit:g}. Raise the "
                    "limit to continue."
                )
        return None

    def book(self, phase: str, model: str, *, usage: Usage, fee: float = 0.0) -> None:
        """Count what was used already; refuses nothing."""
        priced = self._priced(model, usage, fee)
        self._spent[phase] = _added(priced, self._spent[phase]) if phase in self._spent else priced

    def state_dict(self) -> dict[str, Any]:
        """What was spent, as JSON values; limits and prices are settings and are not included."""
        return {phase: spent.model_dump(mode="json") for phase, spent in sorted(self.by_phase.items())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what an earlier run has spent.

        Raises:
            FileFormatError: the state is not one of a meter.
        """
        with validating("the state of the usage meter is malformed"):
            spent = {phase: Spent.model_validate(entry) for phase, entry in state.items()}
        self._spent = {phase: {**dict(entry), **dict(entry.usage)} for phase, entry in spent.items()}

    def _priced(self, model: str, usage: Usage, fee: float) -> _Sums:
        if model not in self._price_of:
            self._price_of[model] = price_of(model, self._prices)
        price = self._price_of[model]
        if price is not None:
            fee += price.cost(usage.input_tokens, usage.cached_tokens, usage.output_tokens)
        is_unpriced = price is None and usage.tokens
        return {**vars(usage), "dollars": fee, "unpriced_calls": usage.calls if is_unpriced else 0}
