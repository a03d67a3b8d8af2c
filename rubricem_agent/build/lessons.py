"""What `rubricem ask` remembers: the bank's lessons put before a question, and a lesson taken from an attempt."""

import asyncio
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.build.memory import build_bank, build_injector, open_existing_bank
from rubricem_agent.config.memory import HASHING, BankConfig
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.gate import Refusal
from rubricem_agent.memory.header import read_header
from rubricem_agent.memory.inject import Injector
from rubricem_agent.memory.retrieval import Retrieval
from rubricem_agent.policy.base import Policy
from rubricem_agent.reflection.candidates import PolicyCandidates
from rubricem_agent.reflection.reflector import Reflector
from rubricem_env.domain.errors import BoundaryError
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.scaffold.reading import Reading


class References(NamedTuple):
    """What is put before a question."""

    block: str = ""
    shown: int = 0
    """How many lessons the block holds."""
    kept: int = 0
    """How many the bank has in all."""


class Lessons:
    """A bank with what reads from it and what writes into it."""

    def __init__(self, bank: RubricBank, injector: Injector, *, reflector: Reflector) -> None:
        self._bank = bank
        self._injector = injector
        self._reflector = reflector

    async def references(self, question: str, mode: Retrieval) -> References:
        """The block for a question; empty where the bank has nothing."""
        found = await asyncio.to_thread(self._bank.retrieve, question, mode)
        injection = self._injector.inject(question, found, mode=mode)
        return References(injection.block, len(injection.shown), len(self._bank))

    async def learn(self, reading: Reading) -> str:
        """Reflect on an attempt and keep the lesson, unranked: there is no judge at inference. What became of it."""
        try:
            outcome = await self._reflector.reflect_unjudged(reading)
        except BoundaryError as failure:
            return f"No lesson was taken: {failure}"
        if isinstance(outcome, Refusal):
            return f"No lesson was taken: {outcome.sentence}"
        return f"The lesson:\n{outcome.reflection.takeaways.strip()}"


def build_lessons(folder: Path | None, policy: Policy, *, may_begin: bool) -> Lessons:
    """A bank in a folder, made where there is none and one may begin; without a folder one that is forgotten.

    Raises:
        MissingExtraError: a bank on disk needs a package that is not installed.
        BankFormatError: the folder holds what this release cannot read, or no bank where none may begin.
    """
    config = BankConfig(folder=folder) if folder is not None else BankConfig(embedder=HASHING)
    if folder is not None and (not may_begin or read_header(folder) is not None):
        bank = open_existing_bank(folder, embeds=True)
    else:
        bank = build_bank(config)
    injector = build_injector(config, policy.count_tokens)
    return Lessons(bank, injector, reflector=Reflector(PolicyCandidates(policy), RulesJudge(), bank))
