"""A vLLM server that is asked in tokens: checked once that it reads our tokens and gives the log-probabilities we need."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from rubricem_agent.policy.openai_server import OpenAIServer, Request
from rubricem_agent.policy.openai_wire import Completion, Tokenized
from rubricem_agent.policy.text_conversation import Delta
from rubricem_agent.policy.tokenizer import PolicyTokenizer
from rubricem_env.domain.errors import ModelError

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
        return max((await self._server.ask("completions", body, reply=Completion)).top_logprobs, default=0.0)
