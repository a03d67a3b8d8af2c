"""A vLLM server that is asked in tokens: checked once that it reads our tokens and gives the log-probabilities we need.

A model on a vLLM server in token mode: ids in, ids and log-probabilities out, drawn in as many streams as it takes.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np

from rubricem_agent.policy.base import ContextOverflow, Opening, Sampling, TurnEnd
from rubricem_agent.policy.openai_compatible import STOP_STRINGS, OpenAIServer, Request, Tokenized, WireCompletion
from rubricem_agent.policy.text import PHASE, Delta, Service
from rubricem_agent.policy.tokens import PolicyTokenizer, TokenConversation, TokenDraw, TokenTurn
from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.base import Finish, advise_on_model_error
from rubricem_env.llm.limits import call_with_retry
from rubricem_env.llm.usage import Usage

PROBE = "How wide is the river Tall Fox? Größe: 12 µm, 川の幅.\n\nThe answer"
"""Text that tokenizers cut differently, without special tokens, and after which a model is not certain."""
_HOT = 2.0
"""The most that vLLM takes; at it any model is far less certain than at 1."""
_LEAST_CHANGE = 0.02
"""More than the rounding of one and the same log-probability."""


class TokenServer:
    """One model on one server with the tokenizer that it is asked in."""

    def __init__(self, server: OpenAIServer, tokenizer: PolicyTokenizer) -> None:
        self.tokenizer = tokenizer
        self._server = server
        self._lock = asyncio.Lock()
        self._max_length = 0
        self._follows_temperature = False

    def stream(self, body: Mapping[str, Any], max_tokens: int) -> AsyncGenerator[Delta, None]:
        """Draw after the ids of `body`."""
        return self._server.stream(Request("completions", body, max_tokens))

    async def max_length(self, temperature: float) -> int:
        """The tokens that the server reads in all; the first call checks it, for this temperature too.

        Raises:
            ModelError: it is no vLLM server, has another tokenizer, or gives log-probabilities of another temperature.
        """
        async with self._lock:
            if not self._max_length:
                self._max_length = await self._check()
            if temperature not in (0.0, 1.0) and not self._follows_temperature:
                await self._check_temperature()
        return self._max_length

    async def _check(self) -> int:
        length = (await self._server.models()).vllm_length(self._server.model)
        if not length:
            raise ModelError(
                f"the server does not list {self._server.model!r} as a model of vLLM with a length; token mode needs "
                "vLLM. Use openai:MODEL@URL, which works in text on any server."
            )
        asked = {"prompt": PROBE, "add_special_tokens": False}
        theirs = (await self._server.ask("../tokenize", asked, reply=Tokenized)).tokens
        if theirs != self.tokenizer.encode_foreign(PROBE):
            raise ModelError(
                "the server has another tokenizer than the folder that was given; give the folder of the model that "
                "is served: vllm:MODEL@URL#FOLDER."
            )
        return length

    async def _check_temperature(self) -> None:
        """Of the likeliest token a server either gives the same log-probability at any temperature, or less when hot."""
        if await self._likeliest(1.0) - await self._likeliest(_HOT) < _LEAST_CHANGE:
            raise ModelError(
                "the server gives log-probabilities from before the temperature. Start vLLM with "
                "--logprobs-mode processed_logprobs, or sample at temperature 1."
            )
        self._follows_temperature = True

    async def _likeliest(self, temperature: float) -> float:
        prompt = self.tokenizer.encode_foreign(PROBE)
        body = {"prompt": prompt, "max_tokens": 1, "temperature": temperature, "logprobs": 1, "top_p": 1.0, "top_k": 0}
        return max((await self._server.ask("completions", body, reply=WireCompletion)).top_logprobs, default=0.0)


_FIXED: dict[str, Any] = {
    "logprobs": 0,
    "return_token_ids": True,
    "stop": list(STOP_STRINGS),
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
    "the server streams text without token ids and their log-probabilities; token mode needs a vLLM that knows "
    "return_token_ids. Upgrade it, or use openai:MODEL@URL, which works in text."
)


class ServedTokenPolicy:
    """A served model in token mode."""

    def __init__(self, server: OpenAIServer, tokenizer: PolicyTokenizer, *, service: Service) -> None:
        self._server = server
        self._token_server = TokenServer(server, tokenizer)
        self._service = service
        self.tokenizer = tokenizer

    @property
    def name(self) -> str:
        return self._service.name

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> TokenConversation:
        rng = np.random.default_rng(seed)
        engine = _ServedEngine(self._token_server, self._service, temperature=sampling.temperature, rng=rng)
        return TokenConversation.begin(engine, opening)

    def count_tokens(self, text: str) -> int:
        return self.tokenizer.count(text)

    async def aclose(self) -> None:
        await self._server.aclose()


class _ServedEngine:
    """The engine of one conversation. The server's prefix cache is all that is kept between turns."""

    def __init__(
        self, token_server: TokenServer, service: Service, *, temperature: float, rng: np.random.Generator
    ) -> None:
        self.tokenizer = token_server.tokenizer
        self.max_length = sys.maxsize
        """What the server reads, known from the first turn on."""
        self._token_server = token_server
        self._service = service
        self._temperature = temperature
        self._rng = rng

    async def draw(self, ids: Sequence[int], turn: TokenTurn, *, max_tokens: int) -> Usage:
        """Draw a turn. Where a connection breaks, the next one goes on after what was drawn: nothing is drawn twice."""
        streams: list[_Stream] = []
        await call_with_retry(
            lambda: self._go_on(ids, turn, streams=streams, max_tokens=max_tokens),
            doing=f"get a turn from {self._service.name}",
            error=ModelError,
            advise=advise_on_model_error,
            policy=self._service.retry,
            timing=self._service.timing,
        )
        return sum((stream.usage for stream in streams), Usage())

    def release(self) -> None:
        return None

    async def _go_on(self, ids: Sequence[int], turn: TokenTurn, *, streams: "list[_Stream]", max_tokens: int) -> None:
        """Stream until the turn is over; a stop string inside a thought is followed by another request."""
        self.max_length = await self._token_server.max_length(self._temperature)
        if len(ids) >= self.max_length:
            raise ContextOverflow(f"the conversation has {len(ids)} tokens and the server reads {self.max_length}.")
        goes_on = True
        while goes_on and turn.end is None:
            prompt = [*ids, *(draw.id for draw in turn.draws)]
            left = min(max_tokens - len(turn.draws), self.max_length - len(prompt))
            if left <= 0:
                return
            streams.append(_Stream(turn, len(prompt)))
            await self._follow(streams[-1], prompt, max_tokens=left)
            goes_on = streams[-1].goes_on

    async def _follow(self, stream: "_Stream", prompt: list[int], *, max_tokens: int) -> None:
        seed = int(self._rng.integers(1 << 31))
        body = {**_FIXED, "prompt": prompt, "temperature": self._temperature, "seed": seed}
        expected = Usage(calls=1, input_tokens=len(prompt), output_tokens=max_tokens)
        service = self._service
        async with service.limiter.slot(expected.tokens):
            with service.meter.reserve(PHASE, service.name, expected=expected) as receipt:
                try:
                    async with aclosing(self._token_server.stream(body, max_tokens)) as deltas:
                        async for delta in deltas:
                            if stream.take(delta):
                                break
                finally:
                    receipt.record(stream.usage)


class _Stream:
    """One stream of a turn: its tokens go to the turn, its cost stays here."""

    def __init__(self, turn: TokenTurn, num_sent: int) -> None:
        self._turn = turn
        self._num_sent = num_sent
        self._num_drawn = 0
        self._reported: Usage | None = None
        self._has_begun = False
        self._is_at_stop_string = False

    @property
    def usage(self) -> Usage:
        """As the server counted so far, or else as it came; no tokens where it never began."""
        if not self._has_begun:
            return Usage(calls=1)
        return self._reported or Usage(calls=1, input_tokens=self._num_sent, output_tokens=self._num_drawn)

    @property
    def goes_on(self) -> bool:
        """It stopped at a stop string, which was no end of the turn."""
        return self._is_at_stop_string and self._num_drawn > 0

    def take(self, delta: Delta) -> bool:
        """Hand the tokens of a delta to the turn; whether nothing more is wanted of the stream.

        Raises:
            ModelError: it holds text without ids, or the server read other ids than were sent.
        """
        self._has_begun = True
        self._check(delta)
        self._reported = delta.usage or self._reported
        for token_id, logprob in zip(delta.ids, delta.logprobs, strict=True):
            self._num_drawn += 1
            if self._turn.take(TokenDraw(token_id, logprob)) is not None:
                return True
        self._is_at_stop_string = self._is_at_stop_string or delta.at_stop_string
        if delta.finish is Finish.BLOCKED:
            raise ModelError("the server refused to write the turn; ask something else or use another model")
        if delta.finish is Finish.STOP and not self._is_at_stop_string:
            self._turn.end = TurnEnd.STOPPED
        return False

    def _check(self, delta: Delta) -> None:
        if len(delta.ids) != len(delta.logprobs) or (delta.text and not (delta.ids or self._num_drawn)):
            raise ModelError(NO_IDS)
        if delta.usage is not None and delta.usage.input_tokens != self._num_sent:
            raise ModelError(
                f"the server read {delta.usage.input_tokens} tokens where {self._num_sent} were sent; it tokenises "
                "again. Use openai:MODEL@URL, which works in text."
            )
