"""Where reflections come from: several drawn for one prompt, from any policy."""

from collections.abc import Sequence
from typing import Protocol

from rubricem_agent.policy.base import Opening, Piece, Policy, Sampling, Silence
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.judge.together import run_together


class Candidate(Frozen):
    """One reflection as it was written."""

    text: Text
    pieces: tuple[Piece, ...] = ()
    """The prompt's tokens and its own, with log-probabilities under the sampling temperature; empty in text mode."""


class CandidateSource(Protocol):
    """The policy in its other role."""

    @property
    def name(self) -> str: ...

    def count_tokens(self, text: str) -> int: ...

    async def sample(self, opening: Opening, *, sampling: Sampling, seeds: Sequence[int]) -> tuple[Candidate, ...]:
        """One candidate for each seed, in that order.

        Raises:
            ModelError: the policy could not be reached, or failed.
        """
        ...


class PolicyCandidates:
    """Draws from a policy, each candidate in a conversation of its own; a policy that batches batches them."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @property
    def name(self) -> str:
        return self._policy.name

    def count_tokens(self, text: str) -> int:
        return self._policy.count_tokens(text)

    async def sample(self, opening: Opening, *, sampling: Sampling, seeds: Sequence[int]) -> tuple[Candidate, ...]:
        """One candidate for each seed, all at once."""
        return tuple(await run_together([self._draw(opening, sampling, seed) for seed in seeds]))

    async def _draw(self, opening: Opening, sampling: Sampling, seed: int) -> Candidate:
        conversation = self._policy.open(opening, sampling=sampling, seed=seed)
        try:
            emission = await conversation.emit(max_tokens=sampling.max_turn_tokens, listener=Silence())
            return Candidate(text=emission.text, pieces=conversation.pieces)
        finally:
            conversation.close()
