"""A model on a vLLM server in token mode: ids in, ids and log-probabilities out.

The server is checked once: it must read our tokens and report the log-probabilities at the sampling temperature.
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import numpy as np

from rubricem_agent.policy.base import Opening, stop_strings
from rubricem_agent.policy.text import PHASE, REFUSED, Service
from rubricem_agent.policy.tokens import PolicyTokenizer, TokenConversation, TokenTurn
from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.chat import Delta
from rubricem_env.llm.http_failures import ContextOverflow
from rubricem_env.llm.limits.retry import call_with_retry
from rubricem_env.llm.openai_compatible import OpenAICompatibleModel
from rubricem_env.llm.usage import Usage
from rubricem_records.rollouts.sampling import Sampling

PROBE = "How wide is the river Tall Fox? Größe: 12 µm, 川の幅.\n\nThe answer"
"""Text without special tokens that tokenizers split differently, and after which no model is certain."""
_HOT = 2.0
"""The highest temperature of vLLM. At it any model is far less certain than at 1."""
_LEAST_CHANGE = 0.02
"""More than the rounding error of one log-probability."""
_FIXED: dict[str, Any] = {
    "logprobs": 0,
    "return_token_ids": True,
    "include_stop_str_in_output": True,
    "skip_special_tokens": False,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    # The model's generation_config.json would set these, and the log-probabilities would not be the sampler's.
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "watermarking": False,
}
NO_IDS = (
    "the server streams text without token ids and their log-probabilities; token mode needs a vLLM that supports "
    "return_token_ids. Upgrade it, or use openai:MODEL@URL, which works in text."
)


class ServedTokenPolicy:
    """A served model in token mode, with the tokenizer that its requests use."""

    def __init__(self, server: OpenAICompatibleModel, tokenizer: PolicyTokenizer, *, service: Service) -> None:
        self.server = server
        self.service = service
        self.name = service.name
        self.tokenizer = tokenizer
        self._lock = asyncio.Lock()
        self._max_length = 0
        self._follows_temperature = False

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> TokenConversation:
        return _ServedConversation(self, opening, temperature=sampling.temperature, rng=np.random.default_rng(seed))

    def count_tokens(self, text: str) -> int:
        return self.tokenizer.count(text)

    async def aclose(self) -> None:
        await self.server.aclose()

    async def max_length(self, temperature: float) -> int:
        """The tokens that the server reads in all. The first call checks the server, for this temperature too.

        Raises:
            ModelError: it is not vLLM, has another tokenizer, or reports log-probabilities at another temperature.
        """
        async with self._lock:
            if not self._max_length:
                self._max_length = await self._check_server()
            if temperature not in (0.0, 1.0) and not self._follows_temperature:
                await self._check_temperature()
        return self._max_length

    async def _check_server(self) -> int:
        model = await self.server.find_on_vllm()
        if model is None or not model.max_model_len:
            raise ModelError(
                f"the server does not list {self.server.name!r} as a model of vLLM with a length; token mode needs "
                "vLLM. Use openai:MODEL@URL, which works in text on any server."
            )
        theirs = await self.server.tokenize({"prompt": PROBE, "add_special_tokens": False})
        if theirs != self.tokenizer.encode_foreign(PROBE):
            raise ModelError(
                "the server has another tokenizer than the given folder; give the folder of the model that is served: "
                "vllm:MODEL@URL#FOLDER."
            )
        return model.max_model_len

    async def _check_temperature(self) -> None:
        """Heat lowers the log-probability of the likeliest token, if the server applies the temperature to it."""
        if await self._likeliest(1.0) - await self._likeliest(_HOT) < _LEAST_CHANGE:
            raise ModelError(
                "the server gives log-probabilities from before the temperature. Start vLLM with "
                "--logprobs-mode processed_logprobs, or sample at temperature 1."
            )
        self._follows_temperature = True

    async def _likeliest(self, temperature: float) -> float:
        prompt = self.tokenizer.encode_foreign(PROBE)
        body = {"prompt": prompt, "max_tokens": 1, "temperature": temperature, "logprobs": 1, "top_p": 1.0, "top_k": 0}
        alternatives = (await self.server.complete_prompt(body)).top_logprobs
        return max(((alternatives[0] if alternatives else None) or {}).values(), default=0.0)


class _ServedConversation(TokenConversation):
    """A conversation of which the server holds nothing but its prefix cache."""

    def __init__(
        self, policy: ServedTokenPolicy, opening: Opening, *, temperature: float, rng: np.random.Generator
    ) -> None:
        # The server's limit is known from the first turn on.
        super().__init__(
            policy.tokenizer,
            policy.tokenizer.encode_opening(opening),
            max_length=sys.maxsize,
            scaffold=opening.scaffold,
        )
        self._policy = policy
        self._temperature = temperature
        self._rng = rng

    async def draw(self, ids: Sequence[int], turn: TokenTurn, *, max_tokens: int) -> Usage:
        """Draw a turn. After a broken connection the next request continues behind the drawn tokens."""
        usages: list[Usage] = []
        service = self._policy.service
        await call_with_retry(
            lambda: self._continue(ids, turn, usages=usages, max_tokens=max_tokens),
            doing=f"get a turn from {service.name}",
            error=ModelError,
            policy=service.retry,
            timing=service.timing,
        )
        return sum(usages, Usage())

    async def _continue(self, ids: Sequence[int], turn: TokenTurn, *, usages: list[Usage], max_tokens: int) -> None:
        """Stream until the turn is over; a stop string inside a thought is followed by another request."""
        self.max_length = await self._policy.max_length(self._temperature)
        if len(ids) >= self.max_length:
            raise ContextOverflow(f"the conversation has {len(ids)} tokens and the server reads {self.max_length}.")
        needs_more = True
        while needs_more and turn.end is None:
            prompt = [*ids, *turn.ids]
            left = min(max_tokens - len(turn.ids), self.max_length - len(prompt))
            if left <= 0:
                return
            needs_more = await self._follow(turn, prompt, usages=usages, max_tokens=left)
        if not turn.ids and turn.end == "stopped":
            # A policy that says nothing draws its end token; this is no turn of it.
            turn.end = None
            raise ModelError("the server ended the turn without a token", is_retryable=True)

    async def _follow(self, turn: TokenTurn, prompt: list[int], *, usages: list[Usage], max_tokens: int) -> bool:
        """Add one stream to the turn and its cost to `usages`; whether it ended at a stop string inside the turn.

        The cost is as the server reports so far, else counted here; no tokens if nothing arrived.
        """
        seed = int(self._rng.integers(1 << 31))
        body = {
            **_FIXED,
            "stop": list(stop_strings(self.scaffold)),
            "prompt": prompt,
            "temperature": self._temperature,
            "seed": seed,
        }
        expected = Usage(calls=1, input_tokens=len(prompt), output_tokens=max_tokens)
        server = self._policy.server
        service = self._policy.service
        before = len(turn.ids)
        has_begun = False
        is_at_stop_string = False
        reported: Usage | None = None
        usages.append(Usage(calls=1))
        async with (
            service.limiter.slot(expected.input_tokens, expected.output_tokens),
            service.meter.reserve(PHASE, service.name, expected=expected) as record,
        ):
            try:
                async with aclosing(server.stream("completions", body, max_tokens=max_tokens)) as deltas:
                    async for delta in deltas:
                        has_begun = True
                        _check(delta, num_sent=len(prompt), has_drawn=len(turn.ids) > before)
                        reported = delta.usage or reported
                        is_at_stop_string = is_at_stop_string or delta.at_stop_string
                        if _take(turn, delta, is_at_stop_string=is_at_stop_string):
                            break
            finally:
                if has_begun:
                    drawn = len(turn.ids) - before
                    usages[-1] = reported or Usage(calls=1, input_tokens=len(prompt), output_tokens=drawn)
                record(usages[-1])
        return is_at_stop_string and len(turn.ids) > before


def _take(turn: TokenTurn, delta: Delta, *, is_at_stop_string: bool) -> bool:
    """Pass the tokens of a delta to the turn; whether the rest of the stream is not needed."""
    for token_id, logprob in zip(delta.ids, delta.logprobs, strict=True):
        if turn.take(token_id, logprob) is not None:
            return True
    if delta.finish == "blocked":
        raise ModelError(REFUSED)
    if delta.finish == "stop" and not is_at_stop_string:
        turn.end = "stopped"
    return False


def _check(delta: Delta, *, num_sent: int, has_drawn: bool) -> None:
    """Refuse text without ids, and a server that read other ids than were sent."""
    if len(delta.ids) != len(delta.logprobs) or (delta.text and not (delta.ids or has_drawn)):
        raise ModelError(NO_IDS)
    if delta.usage is not None and delta.usage.input_tokens != num_sent:
        raise ModelError(
            f"the server read {delta.usage.input_tokens} tokens where {num_sent} were sent; it tokenises "
            "again. Use openai:MODEL@URL, which works in text."
        )
