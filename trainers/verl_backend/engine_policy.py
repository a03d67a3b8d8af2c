"""A policy over a sampling engine of veRL: token ids in, ids and log-probabilities out, one engine object an episode.

Knows of veRL only the one call that it makes, so it is tested, and can be used, without veRL.
"""

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from rubricem_agent.policy.base import Opening, Sampling, TurnEnd
from rubricem_agent.policy.tokens import PolicyTokenizer, TokenConversation, TokenTurn
from rubricem_env.domain.errors import ModelError, boundary
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.grammar import GRAMMAR, Role

STOPS = tuple(f"</{tag.name}>" for tag in GRAMMAR if tag.role is Role.ACTION)
"""What engines are asked to stop at."""


class EngineReply(Protocol):
    """What an engine has drawn."""

    @property
    def token_ids(self) -> list[int]: ...

    @property
    def log_probs(self) -> list[float] | None: ...

    @property
    def extra_fields(self) -> dict[str, Any]: ...


class TokenClient(Protocol):
    """veRL's `LLMServerClient`: routes to an engine, and in the async modes goes on after a change of weights."""

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> EngineReply: ...


class Versions(NamedTuple):
    """The weights that an episode was drawn with, from the first draw to the last; numbered by veRL's steps."""

    first: int
    last: int


class EnginePolicy:
    """One episode's policy, or that of all reflections: it remembers which weights have drawn."""

    name = "verl"

    def __init__(self, client: TokenClient, tokenizer: PolicyTokenizer, *, max_length: int) -> None:
        self.tokenizer = tokenizer
        self._client = client
        self._max_length = max_length
        self._seen: set[int] = set()

    def versions(self, otherwise: int) -> Versions:
        """`otherwise` for an episode that never drew."""
        return Versions(min(self._seen, default=otherwise), max(self._seen, default=otherwise))

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> TokenConversation:
        """The seed is not used: an engine that resumes a turn under new weights cannot repeat it anyway."""
        engine = _Engine(self._client, self.tokenizer, temperature=sampling.temperature, seen=self._seen)
        engine.max_length = self._max_length
        return TokenConversation.begin(engine, opening)

    def count_tokens(self, text: str) -> int:
        return self.tokenizer.count(text)

    async def aclose(self) -> None:
        return None


class _Engine:
    """The engine of one conversation; the same request id brings it to the same server, whose prefix cache is warm."""

    max_length: int

    def __init__(self, client: TokenClient, tokenizer: PolicyTokenizer, *, temperature: float, seen: set[int]) -> None:
        self.tokenizer = tokenizer
        self._client = client
        self._temperature = temperature
        self._seen = seen
        self._request_id = uuid.uuid4().hex

    async def draw(self, ids: Sequence[int], turn: TokenTurn, *, max_tokens: int) -> Usage:
        """Draw a turn. A stop string inside a thought ends no turn, so it is followed by another request."""
        calls = 0
        while turn.end is None and len(turn.ids) < max_tokens:
            prompt = [*ids, *turn.ids]
            calls += 1
            await self._go_on(prompt, turn, max_tokens=max_tokens - len(turn.ids))
        return Usage(calls=calls, input_tokens=len(ids), output_tokens=len(turn.ids))

    def release(self) -> None:
        return None

    async def _go_on(self, prompt: list[int], turn: TokenTurn, *, max_tokens: int) -> None:
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
            reply = await self._client.generate(self._request_id, prompt_ids=prompt, sampling_params=params)
        self._note_versions(reply)
        self._take(reply, turn)
        is_cut_short = len(reply.token_ids) < max_tokens
        if turn.end is None and is_cut_short and not turn.text.rstrip().endswith(STOPS):
            turn.end = TurnEnd.STOPPED

    def _take(self, reply: EngineReply, turn: TokenTurn) -> None:
        """Hand over the tokens; those after the end of the turn, from an engine that cannot stop there, are dropped."""
        logprobs = reply.log_probs or []
        if len(logprobs) != len(reply.token_ids):
            raise ModelError(
                f"the sampling engine gave {len(reply.token_ids)} tokens and {len(logprobs)} log-probabilities; set "
                "actor_rollout_ref.rollout.calculate_log_probs to true."
            )
        for token_id, logprob in zip(reply.token_ids, logprobs, strict=True):
            if turn.take(token_id, logprob) is not None:
                return

    def _note_versions(self, reply: EngineReply) -> None:
        for name in ("min_global_steps", "max_global_steps"):
            version = reply.extra_fields.get(name)
            if version is not None:
                self._seen.add(int(version))
