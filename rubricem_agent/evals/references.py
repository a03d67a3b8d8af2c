"""What a memory shows before a question of an evaluation.

Memory at evaluation is read-only: it shows lessons of other questions from a trained bank, or the agent's reflection
on its own earlier attempt. There is no judge at inference: of one attempt a single reflection at temperature 0.7 is
taken unranked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.inject import Injector
from rubricem_agent.reflection.reflector import Reflector
from rubricem_records.rollouts.rollouts import Rollout

References = Callable[[str, Sequence[Rollout]], Awaitable[str]]
"""What a memory shows before a question, given the earlier attempts at it: a reference block, or nothing."""


Reuse = Literal["none", "cross", "within"]
"""Which reflections are shown before a question.

cross: those on similar questions, from a trained bank. within: the agent's reflection on its earlier attempt at the
same question, which needs two attempts.
"""


async def no_references(question: str, attempts: Sequence[Rollout]) -> str:
    """The default of the paper's main tables: no memory."""
    return ""


async def cross_references(question: str, attempts: Sequence[Rollout], *, bank: RubricBank, injector: Injector) -> str:
    """Lessons retrieved from a trained bank, which is never written to."""
    retrieved = await asyncio.to_thread(bank.retrieve, question, "cross")
    return injector.render(retrieved, "cross")[0]


async def within_references(
    question: str,
    attempts: Sequence[Rollout],
    *,
    open_bank: Callable[[], RubricBank],
    open_reflector: Callable[[RubricBank], Reflector],
    injector: Injector,
) -> str:
    """A reflection on the last attempt alone; other examples never see it.

    Empty before the first attempt, and where the reflection has the wrong form.

    Raises ModelError where the policy failed while it reflected.
    """
    if not attempts:
        return ""
    bank = open_bank()
    await open_reflector(bank).reflect_unjudged(attempts[-1].parsed)
    return injector.render(bank.retrieve(question, "within"), "within")[0]
