"""The trained tiny policy as the writer of the examples; needs torch and transformers."""

from pathlib import Path

from docs.adapters.writers import Writer
from rubricem_agent.policy import (
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
)
from rubricem_env.env import LoopThread

TURN_TOKENS = 300


class PolicyWriters:
    """The policy of a folder, drawn at temperature 1; attempts in several threads are drawn in one batch."""

    def __init__(self, folder: Path) -> None:
        self.name = f"the policy in {folder}"
        self._policy = LocalPolicy(load_model(folder), load_tokenizer(folder), rows=8)
        self._loop = LoopThread()

    def begin(self, index: int) -> Writer:
        return _PolicyWriter(self._policy, self._loop, index)

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
