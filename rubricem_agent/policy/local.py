"""A transformers model in this process: batched generation, each conversation's KV cache kept from turn to turn.

A model folder as transformers writes it: weights, tokenizer and chat template, read without the network.

The path `tiny` means the policy that comes with the package.

Draws tokens for many conversations at once: prefill in chunks, then one token for every conversation a step.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen3ForCausalLM

from rubricem_agent.policy.base import Opening, Sampling, model_folder
from rubricem_agent.policy.qwen3 import Feed, Qwen3Decoder
from rubricem_agent.policy.tokens import PolicyTokenizer, TokenConversation, TokenDraw, TokenizerParts, TokenTurn
from rubricem_env.domain.errors import ConfigError, ModelError, RubricEMError, boundary
from rubricem_env.llm.usage import Usage


def load_model(path: Path) -> Qwen3ForCausalLM:
    """The weights, in the precision that they were saved in.

    Raises:
        ConfigError: the folder holds no Qwen3 model.
        ModelError: the folder is damaged.
    """
    path = model_folder(path)
    if not (path / "config.json").is_file():
        raise ConfigError(f"{path} holds no config.json; give the folder that save_pretrained wrote.")
    with boundary(ModelError, f"load the model in {path}"):
        model: Qwen3ForCausalLM = Qwen3ForCausalLM.from_pretrained(path, local_files_only=True, dtype="auto")
    model.to(torch.device("cuda" if torch.cuda.is_available() else "cpu"))  # type: ignore[arg-type]
    model.train(False)
    return model


def load_tokenizer(path: Path) -> PolicyTokenizer:
    """The tokenizer of a model folder.

    Raises:
        ConfigError: there is none, it has no chat template, or it is not byte-level.
    """
    path = model_folder(path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as cause:
        raise ConfigError(f"{path} holds no tokenizer: {cause}. Save one beside the model.") from cause
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ConfigError(f"the tokenizer in {path} is a {type(tokenizer).__name__}; token mode needs a fast one.")
    return policy_tokenizer(tokenizer)


def policy_tokenizer(tokenizer: PreTrainedTokenizerFast) -> PolicyTokenizer:
    """A transformers tokenizer as the policy uses it."""
    if not tokenizer.chat_template:
        raise ConfigError("the tokenizer has no chat template; add chat_template.jinja to the model's folder.")

    def render(opening: Opening) -> str:
        messages = [{"role": "system", "content": opening.system}, {"role": "user", "content": opening.user}]
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    end = tokenizer.eos_token_id
    return PolicyTokenizer.of(
        TokenizerParts(tokenizer.backend_tokenizer, render, frozenset([end] if end is not None else []))
    )


CHUNK = 256
"""Tokens of one row that are prefilled in one pass."""
PREFILL_TOKENS = 4_096
"""Tokens of all rows in one pass, which bounds the memory of attention."""
SHARED_PREFIX = 32
"""So many equal tokens are taken over from another conversation's cache; fewer are read again."""


class CacheRow:
    """One row of the cache and the conversation that sits on it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.cached: list[int] = []

    def rewind(self, ids: Sequence[int]) -> None:
        """Keep of the cache what is a beginning of `ids`; at least one token is left to be fed."""
        length = common_prefix(self.cached, ids)
        del self.cached[min(length, len(ids) - 1) :]


class Job:
    """One turn to draw."""

    def __init__(
        self,
        row: CacheRow,
        ids: Sequence[int],
        *,
        turn: TokenTurn,
        max_tokens: int,
        temperature: float,
        rng: np.random.Generator,
    ) -> None:
        row.rewind(ids)
        self.row = row
        self.ids = list(ids)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.temperature = temperature
        self.rng = rng
        self._turn = turn
        self._left = max_tokens

    @property
    def pending(self) -> list[int]:
        """What is not cached yet."""
        return self.ids[len(self.row.cached) :]

    @property
    def num_pending(self) -> int:
        return len(self.ids) - len(self.row.cached)

    def take(self, draw: TokenDraw) -> bool:
        """Append a token; whether the turn is over."""
        self.ids.append(draw.id)
        self._left -= 1
        return self._turn.take(draw) is not None or self._left == 0


class _Drawn(NamedTuple):
    job: Job
    draw: TokenDraw


class Batcher:
    """One model, many conversations. Jobs come and go between steps; the model runs in a thread of its own."""

    def __init__(self, decoder: Qwen3Decoder) -> None:
        self._decoder = decoder
        self._jobs: dict[int, Job] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decode")
        self._task: asyncio.Task[None] | None = None

    async def run(self, job: Job) -> None:
        """Draw a turn to its end.

        Raises:
            ModelError: the model failed.
        """
        self._jobs[job.row.number] = job
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._steps())
        try:
            await job.done
        finally:
            self._jobs.pop(job.row.number, None)

    async def aclose(self) -> None:
        """Stop between two steps; jobs under way are cancelled."""
        for job in self._jobs.values():
            job.done.cancel()
        self._jobs.clear()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def _steps(self) -> None:
        loop = asyncio.get_running_loop()
        while self._jobs:
            jobs = [self._jobs[number] for number in sorted(self._jobs)]
            try:
                with boundary(ModelError, "run the local model"):
                    drawn = await loop.run_in_executor(self._thread, self._step, jobs)
            except ModelError as failure:
                self._fail(jobs, failure)
                continue
            for job, draw in drawn:
                self._hand_over(job, draw)
            # What waits for a finished turn gets the chance to hand in the next one before the step begins.
            await asyncio.sleep(0)

    def _hand_over(self, job: Job, draw: TokenDraw) -> None:
        """Give a job its token. One whose listener fails fails alone: the others go on."""
        if job.done.done():
            return
        try:
            with boundary(ModelError, "hand a token over"):
                is_over = job.take(draw)
        except RubricEMError as failure:
            self._fail([job], failure)
            return
        if is_over:
            self._jobs.pop(job.row.number, None)
            job.done.set_result(None)

    def _fail(self, jobs: Sequence[Job], failure: RubricEMError) -> None:
        for job in jobs:
            # The row of a job that was cancelled meanwhile may have another one already.
            if self._jobs.get(job.row.number) is job:
                del self._jobs[job.row.number]
            job.row.cached.clear()
            if not job.done.done():
                job.done.set_exception(failure)

    def _step(self, jobs: Sequence[Job]) -> list[_Drawn]:
        """One pass of the model: prefill where any is left to do, else one token for each."""
        reading = [(job, jobs[:place]) for place, job in enumerate(jobs) if job.num_pending > 1]
        if not reading:
            return self._pass(jobs, 1)
        ready = [job for job, before in reading if not self._waits_for_shared_prefix(job, before)]
        return self._pass(ready[: max(1, PREFILL_TOKENS // CHUNK)], CHUNK)

    def _waits_for_shared_prefix(self, job: Job, before: Sequence[Job]) -> bool:
        """Take over what a job before it with the same beginning has cached; wait while that one still reads it.

        Nobody waits for a job behind it, so the first one that reads always goes on.
        """
        leader, shared = job, len(job.row.cached) + SHARED_PREFIX - 1
        for other in before:
            if other.ids[: shared + 1] == job.ids[: shared + 1]:
                length = min(common_prefix(other.ids, job.ids), len(other.ids) - 1, len(job.ids) - 1)
                leader, shared = (other, length) if length > shared else (leader, shared)
        if leader is job:
            return False
        if len(leader.row.cached) < shared:
            return True
        self._decoder.copy_prefix(leader.row.number, job.row.number, length=shared)
        job.row.cached = job.ids[:shared]
        return False

    def _pass(self, jobs: Sequence[Job], most: int) -> list[_Drawn]:
        feeds = [Feed(job.row.number, len(job.row.cached), job.pending[:most]) for job in jobs]
        logits = self._decoder.logits(feeds)
        for job, feed in zip(jobs, feeds, strict=True):
            job.row.cached += feed.ids
        through = [place for place, job in enumerate(jobs) if job.num_pending == 0]
        chosen = [jobs[place] for place in through]
        return [_Drawn(job, draw) for job, draw in zip(chosen, draw_tokens(logits[through], chosen), strict=True)]


def draw_tokens(logits: torch.Tensor, jobs: Sequence[Job]) -> list[TokenDraw]:
    """One token for each row of (B, vocabulary), with its log-probability at the row's temperature.

    At temperature 0 the likeliest token, with its log-probability at temperature 1.
    """
    if not jobs:
        return []
    temperatures = [job.temperature or 1.0 for job in jobs]
    scaled = logits / torch.tensor(temperatures, device=logits.device)[:, None]
    logprobs = torch.log_softmax(scaled, dim=-1)
    cumulative = logprobs.double().exp().cumsum(dim=-1)
    draws = torch.tensor([job.rng.random() for job in jobs], dtype=torch.float64, device=logits.device)
    # Scaled by the last sum, so that rounding never leaves the vocabulary.
    sampled = torch.searchsorted(cumulative, draws[:, None] * cumulative[:, -1:], right=True)[:, 0]
    greedy = torch.tensor([job.temperature == 0 for job in jobs], device=logits.device)
    ids = torch.where(greedy, logits.argmax(dim=-1), sampled)
    taken = logprobs.gather(1, ids[:, None])[:, 0]
    return [TokenDraw(token, logprob) for token, logprob in zip(ids.tolist(), taken.tolist(), strict=True)]


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """How many ids two sequences begin with alike."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[:middle] == right[:middle] else (low, middle - 1)
    return low


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
        self._waiting: list[asyncio.Future[CacheRow]] = []

    async def take(self) -> CacheRow:
        if self._free:
            return CacheRow(self._free.pop())
        place: asyncio.Future[CacheRow] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            return await place
        except asyncio.CancelledError:
            # The row may have been given in the very moment in which its taker was cancelled.
            if place.done() and not place.cancelled():
                self.give_back(place.result())
            raise

    def give_back(self, row: CacheRow) -> None:
        while self._waiting:
            place = self._waiting.pop(0)
            if not place.done():
                place.set_result(CacheRow(row.number))
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
        self._row: CacheRow | None = None

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
