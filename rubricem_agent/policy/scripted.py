"""A policy without a model: text by a function of what was read, for tests, demos, simulations and dry runs."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Protocol

from rubricem_agent.policy.base import Emission, Listener, Opening, Piece, Sampling, TurnEnd
from rubricem_agent.policy.watch import TurnWatch
from rubricem_env.env.episode import estimate_tokens
from rubricem_env.llm.usage import Usage

_WORD = re.compile(r"\s*\S+|\s+$")


class Writer(Protocol):
    """Writes the turns of one episode."""

    def emission(self, observation: str) -> str:
        """The next turn, after reading the observation; the first one is given the user message."""
        ...


class ScriptedPolicy:
    """Opens a writer for each episode; `delay` seconds pass before each turn, as a model would take."""

    def __init__(
        self,
        write: Callable[[Opening, int], Writer],
        *,
        name: str = "scripted",
        delay: float = 0.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._write = write
        self._name = name
        self._delay = delay
        self._sleep = sleep

    @property
    def name(self) -> str:
        return self._name

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> "ScriptedConversation":
        """A conversation with a writer of its own; `sampling` has nothing to act upon."""
        return ScriptedConversation(self._write(opening, seed), opening.user, pause=self._pause)

    def count_tokens(self, text: str) -> int:
        return estimate_tokens(text)

    async def aclose(self) -> None:
        return None

    async def _pause(self) -> None:
        if self._delay:
            await self._sleep(self._delay)


class ScriptedConversation:
    """One writer's episode, in text."""

    def __init__(self, writer: Writer, user: str, *, pause: Callable[[], Awaitable[None]]) -> None:
        self._writer = writer
        self._unread = user
        self._pause = pause

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return ()

    async def emit(self, *, max_tokens: int, listener: Listener) -> Emission:
        """The writer's text, as long as it is: a script keeps no budget, the episode does."""
        await self._pause()
        text = self._writer.emission(self._unread)
        self._unread = ""
        for word in _WORD.findall(text):
            listener.wrote(word)
        end = TurnWatch().feed(text) or TurnEnd.STOPPED
        return Emission(text, end, Usage(calls=1, output_tokens=estimate_tokens(text)))

    def observe(self, text: str) -> None:
        self._unread += text

    def close(self) -> None:
        return None
