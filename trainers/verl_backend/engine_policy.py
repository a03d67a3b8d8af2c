"""A policy over a sampling engine of veRL: token ids in, ids and log-probabilities out.

It makes a single call of veRL's `LLMServerClient`, so it can be tested and used without veRL.
"""

import uuid
from collections.abc import Sequence
from typing import Any

from rubricem_agent.policy.base import Opening, Sampling
from rubricem_agent.policy.tokens import PolicyTokenizer, TokenConversation, TokenTurn
from rubricem_env.domain.errors import ModelError, boundary
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.grammar import GRAMMAR

STOPS = tuple(f"</{name}>" for name, role in GRAMMAR.items() if role == "action")
"""What engines are told to stop at."""


class EnginePolicy:
    """The policy of one episode, or of all reflections. It remembers which weights have sampled.

    `client` is veRL's `LLMServerClient`: `generate` routes a request to an engine, and in the asynchronous modes resumes
    it after an update of the weights.
    """

    name = "verl"

    def __init__(self, client: Any, tokenizer: PolicyTokenizer, *, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.client = client
        self.max_length = max_length
        self.seen_versions: set[int] = set()

    def versions(self, default: int) -> tuple[int, int]:
        """The first and the last weights that sampled, as veRL's steps; `default` twice before the first token."""
        return min(self.seen_versions, default=default), max(self.seen_versions, default=default)

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> TokenConversation:
        """The seed is not used: an engine that resumes a turn under new weights cannot repeat it anyway."""
        return _EngineConversation(self, opening, temperature=sampling.temperature)

    def count_tokens(self, text: str) -> int:
        return self.tokenizer.count(text)

    async def aclose(self) -> None:
        return None


class _EngineConversation(TokenConversation):
    """A conversation whose request id leads to the same server each time, so that its prefix cache is warm."""

    def __init__(self, policy: EnginePolicy, opening: Opening, *, temperature: float) -> None:
        prompt_ids = policy.tokenizer.encode_opening(opening)
        super().__init__(policy.tokenizer, prompt_ids, max_length=policy.max_length)
        self._policy = policy
        self._temperature = temperature
        self._request_id = uuid.uuid4().hex

    async def draw(self, ids: Sequence[int], turn: TokenTurn, *, max_tokens: int) -> Usage:
        """Sample a turn. A stop string inside a thought does not end it, so another request follows."""
        calls = 0
        while turn.end is None and len(turn.ids) < max_tokens:
            prompt = [*ids, *turn.ids]
            calls += 1
            await self._continue_turn(prompt, turn, max_tokens=max_tokens - len(turn.ids))
        return Usage(calls=calls, input_tokens=len(ids), output_tokens=len(turn.ids))

    async def _continue_turn(self, prompt: list[int], turn: TokenTurn, *, max_tokens: int) -> None:
        """Add the tokens of one request; those after the end of the turn are dropped."""
        params = {
            "temperature": self._temperature,
            "top_p": 1.0,
            "top_k": -1,
            "max_tokens": max_tokens,
            "logprobs": True,
            "stop": list(STOPS),
            "include_stop_str_in_output": True,
        }
        with boundary(ModelError, "get a turn from the sampling engine"):
            reply = await self._policy.client.generate(self._request_id, prompt_ids=prompt, sampling_params=params)
        versions = (reply.extra_fields.get(name) for name in ("min_global_steps", "max_global_steps"))
        self._policy.seen_versions.update(int(version) for version in versions if version is not None)
        logprobs = reply.log_probs or []
        if len(logprobs) != len(reply.token_ids):
            raise ModelError(
                f"the sampling engine gave {len(reply.token_ids)} tokens and {len(logprobs)} log-probabilities; set "
                "actor_rollout_ref.rollout.calculate_log_probs to true."
            )
        for token_id, logprob in zip(reply.token_ids, logprobs, strict=True):
            if turn.take(token_id, logprob) is not None:
                return
        if len(reply.token_ids) < max_tokens and not turn.text.rstrip().endswith(STOPS):
            turn.end = "stopped"
