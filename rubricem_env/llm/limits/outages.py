"""Says which server fails every call, since when and why: retries report each failure, a command says the sentences."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TypeAlias

Report: TypeAlias = Callable[[str], None]
"""Called with the reason of each failure of a call that is tried again."""


class _Outage:
    """The failures of one server since it last answered."""

    def __init__(self, doing: str, say: Callable[[str], None], *, first: float, then: float) -> None:
        self.why = ""
        self.num_calls = 0
        """The calls that have failed and are tried again."""
        self._doing = doing
        self._say = say
        self._first, self._then = first, then
        self._loop = asyncio.get_running_loop()
        self.restart()

    def restart(self) -> None:
        self._since = self._loop.time()
        self._timer = self._loop.call_later(self._first, self._tell)

    def cancel(self) -> None:
        self._timer.cancel()

    def _tell(self) -> None:
        self._say(f"cannot {self._doing} for {self._loop.time() - self._since:.0f} s: {self.why} It is tried again.")
        self._timer = self._loop.call_later(self._then, self._tell)


class Outages:
    """The outages of the servers that a process calls. A server that answers one of many calls is not away.

    A sentence is said `first` seconds after the first failure, then every `then` seconds until a call is answered or
    all of them have been given up.
    """

    def __init__(self, say: Callable[[str], None], *, first: float = 10.0, then: float = 60.0) -> None:
        self._say = say
        self._first, self._then = first, then
        self._by_call: dict[str, _Outage] = {}
        """By what is done, as "ask gpt-4.1"."""

    @contextmanager
    def call(self, doing: str) -> Iterator[Report]:
        """Surround all tries of a call; yields a function that reports a try that failed."""
        has_failed = False

        def report(why: str) -> None:
            nonlocal has_failed
            if doing not in self._by_call:
                self._by_call[doing] = _Outage(doing, self._say, first=self._first, then=self._then)
            outage = self._by_call[doing]
            outage.why = why if why.endswith((".", "?", "!")) else f"{why}."
            outage.num_calls += not has_failed
            has_failed = True

        try:
            yield report
            if (outage := self._by_call.get(doing)) is not None:
                outage.cancel()
                outage.restart()
        finally:
            if has_failed:
                self._end(doing)

    def _end(self, doing: str) -> None:
        outage = self._by_call[doing]
        outage.num_calls -= 1
        if not outage.num_calls:
            outage.cancel()
            del self._by_call[doing]

    @contextmanager
    def noted(self) -> Iterator[None]:
        """While the block runs, retries report to this."""
        reset = _OUTAGES.set(self)
        try:
            yield
        finally:
            _OUTAGES.reset(reset)


_OUTAGES: ContextVar[Outages | None] = ContextVar("outages that a command says", default=None)
"""Between retries and the command above them, which need not know each other."""


def watched(doing: str) -> AbstractContextManager[Report]:
    """All tries of a call; what is reported is said where a command has asked for it."""
    outages = _OUTAGES.get()
    return nullcontext(_ignore) if outages is None else outages.call(doing)


def _ignore(why: str) -> None:
    """Nobody has asked."""
