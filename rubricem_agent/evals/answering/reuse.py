"""The rubric bank at evaluation, read-only: lessons of other questions, or of the agent's own earlier attempt.

At inference there is no judge: within an example one reflection at temperature 0.7 is taken unranked (choice C20).
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.inject import Injector
from rubricem_agent.memory.retrieval import Retrieval
from rubricem_agent.reflection.reflector import Reflector
from rubricem_agent.rollout.rollout import Rollout
from rubricem_env.scaffold.reading import read_trajectory


class Reuse(StrEnum):
    """What is put before a question."""

    NONE = "none"
    CROSS = "cross"
    """Reflections on similar questions, from a bank that is given."""
    WITHIN = "within"
    """The agent's reflection on its earlier attempt at the same question: needs two attempts."""


class CrossReuse:
    """Retrieves from a trained bank and never writes to it."""

    def __init__(self, bank: RubricBank, injector: Injector) -> None:
        self._bank = bank
        self._injector = injector

    async def before(self, question: str, *, attempts: tuple[Rollout, ...]) -> str:
        found = await asyncio.to_thread(self._bank.retrieve, question, Retrieval.CROSS)
        return self._injector.inject(question, found, Retrieval.CROSS).block


class WithinReuse:
    """Reflects on the last attempt and shows that reflection alone; what one example learns reaches no other."""

    def __init__(
        self,
        open_bank: Callable[[], RubricBank],
        open_reflector: Callable[[RubricBank], Reflector],
        *,
        injector: Injector,
    ) -> None:
        self._open_bank = open_bank
        self._open_reflector = open_reflector
        self._injector = injector

    async def before(self, question: str, *, attempts: tuple[Rollout, ...]) -> str:
        """Nothing before the first attempt, and nothing where the reflection has not the right form.

        Raises:
            ModelError: the policy failed while it reflected.
        """
        if not attempts:
            return ""
        bank = self._open_bank()
        await self._open_reflector(bank).reflect_unjudged(read_trajectory(attempts[-1].trajectory))
        return self._injector.inject(question, bank.retrieve(question, Retrieval.WITHIN), Retrieval.WITHIN).block
