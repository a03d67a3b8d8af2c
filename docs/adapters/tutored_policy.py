"""The tutor in the tokens of a policy, for trainers that take tokens."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from docs.adapters.tutor import Tutor, tutored_questions
from rubricem_agent.policy import Opening, PolicyTokenizer, Sampling, TokenConversation, TokenTurn, policy_tokenizer
from rubricem_agent.rollout import Attempt, Rollout, RolloutContext, run_episode
from rubricem_env.domain import Query
from rubricem_env.env import EpisodeLimits, shipped_toolbox
from rubricem_env.llm import Usage


class _TutoredConversation(TokenConversation):
    """Draws what the tutor writes, in the policy's tokens; the probabilities are not the policy's and said to be 1."""

    def __init__(self, tutor: Tutor, tokenizer: PolicyTokenizer, opening: Opening) -> None:
        super().__init__(tokenizer, tokenizer.encode_opening(opening), max_length=100_000)
        self._tutor = tutor
        self._observation = ""

    async def draw(self, ids: Sequence[int], turn: TokenTurn, *, max_tokens: int) -> Usage:
        for token in self.tokenizer.encode_foreign(self._tutor(self._observation)):
            if turn.take(token, 0.0) is not None:
                break
        return Usage(calls=1)

    def observe(self, text: str) -> None:
        super().observe(text)
        self._observation = text


class TutoredPolicy:
    """A policy that writes the tutor's attempts; the seed is the index in `ATTEMPTS`."""

    name = "tutor"

    def __init__(self, tokenizer: PolicyTokenizer) -> None:
        self._tokenizer = tokenizer
        self._questions = tutored_questions()

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> _TutoredConversation:
        tutor = Tutor(self._questions[opening.user], seed)
        return _TutoredConversation(tutor, self._tokenizer, opening)

    def count_tokens(self, text: str) -> int:
        return self._tokenizer.count(text)

    async def aclose(self) -> None:
        return None


def play_tutored() -> Callable[[Sequence[Query], Any], Awaitable[Sequence[Rollout]]]:
    """Plays the attempts in the tokens of a trainer's tokenizer, whatever its model is."""

    async def play(queries: Sequence[Query], trainer: Any) -> Sequence[Rollout]:
        policy = TutoredPolicy(policy_tokenizer(trainer.processing_class))
        context = RolloutContext(policy, shipped_toolbox(), EpisodeLimits(max_tokens=100_000))
        openings = [Opening("Search, then answer.", query.question) for query in queries]
        return [
            await run_episode(Attempt(query, opening, "", index), context)
            for index, (query, opening) in enumerate(zip(queries, openings, strict=True))
        ]

    return play
