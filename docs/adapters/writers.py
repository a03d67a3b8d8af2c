"""Who writes the attempts of the examples: the trained tiny policy where there is one, else the tutor, and it is said.

RUBRICEM_TINY_POLICY names the policy's folder; without it the policy that comes with the package is taken, or the one
that `python -m rubricem_trainers.experiments.tiny_policy --config tiny_policy` leaves.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from docs.adapters.tutor import ATTEMPTS, Tutor, tutored_questions
from rubricem_agent.policy import (
    TINY,
    TINY_SYSTEM,
    ContextOverflow,
    Conversation,
    Listener,
    LocalPolicy,
    Opening,
    Policy,
    Sampling,
    load_model,
    load_tokenizer,
    model_folder,
)
from rubricem_env.env import LoopThread

TURN_TOKENS = 300
Writer = Callable[[str], str]
"""One attempt: the next turn for each observation, the prompt first."""


class Writers(Protocol):
    """Begins attempts."""

    name: str

    def begin(self, place: int) -> Writer: ...

    def close(self) -> None: ...


def policy_folder() -> Path | None:
    """Where the trained policy lies, if it does."""
    named = os.environ.get("RUBRICEM_TINY_POLICY")
    trained_here = Path(__file__).parents[2] / "runs" / "tiny_policy" / "model"
    folders = [Path(named)] if named else [model_folder(Path(TINY)), trained_here]
    return next((folder for folder in folders if (folder / "config.json").is_file()), None)


def find_writers() -> Writers:
    """The trained policy, or else the tutor."""
    folder = policy_folder()
    return Tutors() if folder is None else PolicyWriters(folder)


class Tutors:
    """The tutor's four attempts, over and over."""

    name = "the tutor (no trained policy was found; see docs/adapters/writers.py)"

    def begin(self, place: int) -> Writer:
        # The prompt is the question, and after an empty line the form of the answer.
        def write(observation: str) -> str:
            if not started:
                started.append(Tutor(tutored_questions()[observation.partition("\n\n")[0]], place % len(ATTEMPTS)))
            return started[0](observation)

        started: list[Tutor] = []
        return write

    def close(self) -> None:
        return None


class PolicyWriters:
    """The policy of a folder, drawn at temperature 1; attempts in several threads are drawn in one batch."""

    def __init__(self, folder: Path) -> None:
        self.name = f"the policy in {folder}"
        self._policy = LocalPolicy.over(load_model(folder), load_tokenizer(folder), rows=8)
        self._loop = LoopThread()

    def begin(self, place: int) -> Writer:
        return _PolicyWriter(self._policy, self._loop, place)

    def close(self) -> None:
        self._loop.run(self._policy.aclose())
        self._loop.close()


class _PolicyWriter:
    def __init__(self, policy: Policy, loop: LoopThread, seed: int) -> None:
        self._policy = policy
        self._loop = loop
        self._seed = seed
        self._conversation: Conversation | None = None

    def __call__(self, observation: str) -> str:
        return self._loop.run(self._turn(observation))

    async def _turn(self, observation: str) -> str:
        if self._conversation is None:
            opening = Opening(TINY_SYSTEM, observation)
            self._conversation = self._policy.open(opening, sampling=Sampling(), seed=self._seed)
        else:
            self._conversation.observe(observation)
        try:
            return (await self._conversation.emit(max_tokens=TURN_TOKENS, listener=Listener())).text
        except ContextOverflow:
            return ""  # It can read no more; the environment ends an attempt that says nothing.
