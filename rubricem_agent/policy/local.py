"""A transformers model in this process: batched generation, each conversation's KV cache kept from turn to turn."""

import asyncio
from collections.abc import Sequence

import numpy as np
from transformers import Qwen3ForCausalLM

from rubricem_agent.policy.base import Opening, Sampling
from rubricem_agent.policy.batching import Batcher, Job, Row
from rubricem_agent.policy.qwen3_decode import Qwen3Decoder
from rubricem_agent.policy.token_conversation import TokenConversation, TokenTurn
from rubricem_agent.policy.tokenizer import PolicyTokenizer
from rubricem_env.llm.usage import Usage


class LocalPolicy:
    """Qwen3 in token mode. Conversations beyond `rows` wait until one of the others is closed."""

    def __init__(self, name: str, tokenizer: PolicyTokenizer, *, decoder: Qwen3Decoder) -> None:
        self._name = name
        self._batcher = Batcher(decoder)
        self._seats = _Seats(decoder.rows)
        self._max_length = decoder.max_length
        self.tokenizer = tokenizer

    @classmethod
    def over(
        cls,
        model: Qwen3ForCausalLM,
        tokenizer: PolicyTokenizer,
        *,
        name: str = "local",
        rows: int = 64,
        max_length: int = 26_624,
    ) -> "LocalPolicy":
        """A policy over a model that stays the caller's: its weights may change between turns, not within one.

        After a change of weights open new conversations: the caches of old ones belong to the old weights.
        """
        length = min(max_length, model.config.max_position_embeddings)
        return cls(name, tokenizer, decoder=Qwen3Decoder(model, rows=rows, max_length=length))

    @property
    def name(self) -> str:
        return self._name

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> TokenConversation:
        engine = _RowEngine(
            self.tokenizer,
            self._batcher,
            seats=self._seats,
            max_length=self._max_length,
            temperature=sampling.temperature,
            rng=np.random.default_rng(seed),
        )
        return TokenConversation.begin(engine, opening)

    def count_tokens(self, text: str) -> int:
        return self.tokenizer.count(text)

    async def aclose(self) -> None:
        await self._batcher.aclose()


class _Seats:
    """The rows of the cache that are free. Lower ones first, so that the busy ones stay close together."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count - 1, -1, -1))
        self._waiting: list[asyncio.Future[Row]] = []

    async def take(self) -> Row:
        if self._free:
            return Row(self._free.pop())
        place: asyncio.Future[Row] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            return await place
        except asyncio.CancelledError:
            # The row may have been given in the very moment in which its taker was cancelled.
            if place.done() and not place.cancelled():
                self.give_back(place.result())
            raise

    def give_back(self, row: Row) -> None:
        while self._waiting:
            place = self._waiting.pop(0)
            if not place.done():
                place.set_result(Row(row.number))
                return
        self._free = sorted([*self._free, row.number], reverse=True)


class _RowEngine:
    """The engine of one conversation: its row of the cache, from the first turn until it is released."""

    def __init__(
        self,
        tokenizer: PolicyTokenizer,
        batcher: Batcher,
        *,
        seats: _Seats,
        max_length: int,
        temperature: float,
        rng: np.random.Generator,
    ) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self._batcher = batcher
        self._seats = seats
        self._temperature = temperature
        self._rng = rng
        self._row: Row | None = None

    async def draw(self, ids: Sequence[int], turn: TokenTurn, *, max_tokens: int) -> Usage:
        if self._row is None:
            self._row = await self._seats.take()
        job = Job(self._row, ids, turn=turn, max_tokens=max_tokens, temperature=self._temperature, rng=self._rng)
        cached = len(self._row.cached)
        await self._batcher.run(job)
        return Usage(calls=1, input_tokens=len(ids), cached_tokens=cached, output_tokens=len(turn.draws))

    def release(self) -> None:
        row, self._row = self._row, None
        if row is not None:
            self._seats.give_back(row)
