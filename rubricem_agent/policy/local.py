"""A transformers model in this process: batched decoding that keeps each conversation's KV cache between turns.

Model folders are read without the network, as transformers writes them: weights, tokenizer and chat template. The path
`tiny` means the policy that comes with the package.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jinja2 import TemplateError
from transformers import AutoTokenizer, GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from rubricem_agent.policy.base import Opening, model_folder
from rubricem_agent.policy.causal_lm import max_positions, model_class, open_decoder
from rubricem_agent.policy.chat_template import ChatMessage
from rubricem_agent.policy.decoder import Feed, RowDecoder
from rubricem_agent.policy.drafts import Drafts, common_prefix
from rubricem_agent.policy.tokens import PolicyTokenizer, TokenConversation, TokenTurn
from rubricem_env.domain.errors import ConfigError, ModelError, RubricEMError, boundary
from rubricem_env.env.view import View
from rubricem_env.llm.usage import Usage
from rubricem_records.rollouts.sampling import Sampling


def load_model(path: Path) -> PreTrainedModel:
    """The weights as what they are, in the precision in which they were saved.

    Raises:
        ConfigError: the folder holds no causal language model that can be played; nothing was loaded.
        ModelError: the folder is damaged.
    """
    path = model_folder(path)
    kind = model_class(path)
    disable_progress_bar()  # type: ignore[no-untyped-call]
    with boundary(ModelError, f"load the model in {path}"):
        loaded: Any = kind.from_pretrained(path, local_files_only=True, dtype="auto", output_loading_info=True)
    model, found = cast(tuple[PreTrainedModel, dict[str, Any]], loaded)
    if missing := sorted(found["missing_keys"]):
        raise ModelError(
            f"the weights in {path} lack {missing[0]} and {len(missing) - 1} others of a {kind.__name__}; they would "
            "be random. Restore the folder."
        )
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
    ends: Any = None
    if (path / "generation_config.json").is_file():
        ends = GenerationConfig.from_pretrained(path, local_files_only=True).eos_token_id
    return policy_tokenizer(tokenizer, end_ids=[ends] if isinstance(ends, int) else ends or ())


def policy_tokenizer(tokenizer: PreTrainedTokenizerFast, *, end_ids: Sequence[int] = ()) -> PolicyTokenizer:
    """A transformers tokenizer, for a policy; `end_ids` end its turn besides the tokenizer's own token."""
    if not tokenizer.chat_template:
        raise ConfigError("the tokenizer has no chat template; add chat_template.jinja to the model's folder.")

    def render(messages: Sequence[ChatMessage]) -> str:
        written = [message._asdict() for message in messages]
        try:
            return str(tokenizer.apply_chat_template(written, tokenize=False, add_generation_prompt=True))
        except TemplateError as refused:
            if messages[0].role != "system":
                raise ConfigError(f"the chat template refuses a conversation: {refused}") from refused
            # Gemma's first templates have no system role: the rules begin the user's message.
            system, user, *rest = messages
            return render([ChatMessage("user", f"{system.content}\n\n{user.content}"), *rest])

    own = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    return PolicyTokenizer(tokenizer.backend_tokenizer, render, end_ids=frozenset([*own, *end_ids]))


CHUNK = 256
"""Tokens of one row that are prefilled in one pass."""
PREFILL_TOKENS = 4_096
"""Tokens of all rows in one pass: bounds the memory of attention. A GPU takes four times as many."""
GATHERED_SHARE = 1 / 8
"""On a GPU, where a pass over few rows takes as long as one over many, rows that have something to read wait until they
are this share of all."""
GATHERING_PASSES = 16
"""But no longer than so many passes."""
SHARED_PREFIX = 32
"""The fewest equal tokens that are copied from another conversation's cache; a shorter prefix is computed again."""


class CacheRow:
    """One row of a decoder's cache, and the ids that it holds. `batcher` is the index of its batcher in the policy."""

    def __init__(self, number: int, batcher: int = 0) -> None:
        self.number = number
        self.batcher = batcher
        self.cached: list[int] = []
        self.learnt = 0
        """How many of the conversation's ids its drafts know."""

    def rewind(self, ids: Sequence[int]) -> None:
        """Truncate the cache to its common prefix with `ids`, and leave at least one token to feed."""
        del self.cached[min(common_prefix(self.cached, ids), len(ids) - 1) :]


class RandomNumbers:
    """The uniform numbers of a conversation, one for each token: what was not used for a token comes again."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._ahead: list[float] = []

    def peek(self, count: int) -> list[float]:
        self._ahead += [self._rng.random() for _ in range(count - len(self._ahead))]
        return self._ahead[:count]

    def use(self) -> None:
        del self._ahead[0]


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
        numbers: RandomNumbers,
    ) -> None:
        row.rewind(ids)
        self.row = row
        self.ids = list(ids)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.temperature = temperature
        self.numbers = numbers
        self._turn = turn
        self._left = max_tokens

    @property
    def pending(self) -> list[int]:
        """The ids that are not cached yet."""
        return self.ids[len(self.row.cached) :]

    @property
    def num_pending(self) -> int:
        return len(self.ids) - len(self.row.cached)

    def take(self, token_id: int, logprob: float) -> bool:
        """Append a token; whether the turn is over."""
        self.ids.append(token_id)
        self.numbers.use()
        self._left -= 1
        return self._turn.take(token_id, logprob) is not None or self._left == 0


Draw = tuple[int, float]
"""A token id and its log-probability."""


class Batcher:
    """One model for many conversations. Jobs join and leave between steps; the model runs in its own thread.

    With `on_one_core` torch uses one core in that thread; with `drafts` a pass draws several tokens of a row. The
    drafts are its own: shared with another thread, they would depend on which one is faster.
    """

    def __init__(self, decoder: RowDecoder, *, on_one_core: bool = False, drafts: Drafts | None = None) -> None:
        self._decoder = decoder
        self.drafts = drafts if decoder.can_rewind else None
        self._jobs: dict[int, Job] = {}
        self._on_gpu = decoder.device.type != "cpu"
        self._gathered = 0
        """Passes since a row began to wait."""
        self._thread = ThreadPoolExecutor(1, "decode", partial(torch.set_num_threads, 1) if on_one_core else None)
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
        """Stop between two steps; running jobs are cancelled."""
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
            for job, draws in drawn:
                self._deliver(job, draws)
            # Whoever waits for a finished turn can submit the next one before the step begins.
            await asyncio.sleep(0)

    def _deliver(self, job: Job, draws: Sequence[Draw]) -> None:
        """Give a job its tokens, until its turn is over. If its listener fails, this job alone fails."""
        if job.done.done():
            return
        try:
            with boundary(ModelError, "deliver a token"):
                is_over = any(job.take(*draw) for draw in draws)
        except RubricEMError as failure:
            self._fail([job], failure)
            return
        if is_over:
            self._jobs.pop(job.row.number, None)
            job.done.set_result(None)

    def _fail(self, jobs: Sequence[Job], failure: RubricEMError) -> None:
        for job in jobs:
            # A cancelled job's row may already belong to another job.
            if self._jobs.get(job.row.number) is job:
                del self._jobs[job.row.number]
            job.row.cached.clear()
            if not job.done.done():
                job.done.set_exception(failure)

    def _step(self, jobs: Sequence[Job]) -> list[tuple[Job, list[Draw]]]:
        """One pass of the model: prefill while any row needs it, else the next tokens of each row."""
        parsed = [(job, jobs[:index]) for index, job in enumerate(jobs) if job.num_pending > 1]
        drawing = [job for job in jobs if job.num_pending == 1]
        if drawing and (not parsed or self._waits_for_more(len(parsed), len(jobs))):
            return self._pass(drawing, self._guesses(drawing))
        self._gathered = 0
        ready = [job for job, before in parsed if not self._waits_for_shared_prefix(job, before)]
        return self._pass(ready[: PREFILL_TOKENS * (4 if self._on_gpu else 1) // CHUNK])

    def _waits_for_more(self, parsed: int, jobs: int) -> bool:
        """Whether rows that are to be read wait for others, while the rest draws."""
        self._gathered += 1
        return self._on_gpu and parsed < GATHERED_SHARE * jobs and self._gathered < GATHERING_PASSES

    def _guesses(self, jobs: Sequence[Job]) -> list[list[int]]:
        """Guesses of each row's next tokens, as many as pay and fit into its cache."""
        drafts = self.drafts
        if drafts is None:
            return []
        for job in jobs:
            drafts.learn(job.ids, job.row.learnt)
            job.row.learnt = len(job.ids)
        guesses = [drafts.guess(job.ids) for job in jobs]
        for job, guess in zip(jobs, guesses, strict=True):
            drafts.watch(job.row.number, job.ids, guess)
        longest = max(len(job.ids) for job in jobs)
        expected = drafts.expected()
        # A GPU captures a graph for each width, so there it is all or none.
        counts = (0, drafts.size) if self._on_gpu else range(drafts.size + 1)
        paying = max(counts, key=lambda count: expected[count] / self._decoder.work(len(jobs), 1 + count, longest))
        rooms = [self._decoder.max_length - len(job.ids) for job in jobs]
        return [guess[: min(paying, room)] for guess, room in zip(guesses, rooms, strict=True)]

    def _waits_for_shared_prefix(self, job: Job, before: Sequence[Job]) -> bool:
        """Copy the shared prefix from the cache of an earlier job; wait while that job still prefills it.

        No job waits for a later one, so the first job that prefills always continues.
        """
        leader = job
        shared = len(job.row.cached) + SHARED_PREFIX - 1
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

    def _pass(self, jobs: Sequence[Job], drafts: Sequence[Sequence[int]] = ()) -> list[tuple[Job, list[Draw]]]:
        """Read the next tokens of some rows; draw where nothing is left to read. `drafts` has one for each row."""
        drafts = drafts or [()] * len(jobs)
        parts = [job.pending[:CHUNK] for job in jobs]
        feeds = [
            Feed(job.row.number, len(job.row.cached), [*part, *draft], wanted=len(draft) + 1)
            for job, part, draft in zip(jobs, parts, drafts, strict=True)
        ]
        logits = self._decoder.logits(feeds)
        for job, part in zip(jobs, parts, strict=True):
            job.row.cached += part
        ready = [(job, draft) for job, draft in zip(jobs, drafts, strict=True) if job.num_pending == 0]
        if len(ready) < len(jobs):
            # No row has drafts where some are still read.
            logits = logits[[job.num_pending == 0 for job in jobs]]
        draws = iter(draw_tokens(logits, [(job, len(draft) + 1) for job, draft in ready]))
        drawn = []
        for job, draft in ready:
            tokens = list(islice(draws, len(draft) + 1))
            agreed = common_prefix(draft, [token_id for token_id, _ in tokens])
            job.row.cached += draft[:agreed]
            drawn.append((job, tokens[: agreed + 1]))
        return drawn


def draw_tokens(logits: torch.Tensor, jobs: Sequence[tuple[Job, int]]) -> list[Draw]:
    """One token for each row of (tokens, vocabulary), with its log-probability at the temperature of its job.

    Each job has that many rows. At temperature 0 it is the likeliest token, with its log-probability at temperature 1.
    """
    if not jobs:
        return []
    temperatures = torch.tensor([job.temperature for job, count in jobs for _ in range(count)], device=logits.device)
    greedy = temperatures == 0
    logprobs = torch.log_softmax(logits / torch.where(greedy, 1.0, temperatures)[:, None], dim=-1)
    cumulative = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
    numbers = [number for job, count in jobs for number in job.numbers.peek(count)]
    draws = torch.tensor(numbers, dtype=torch.float64, device=logits.device)
    # Scaled by the last sum, so that rounding cannot select an index beyond the vocabulary.
    sampled = torch.searchsorted(cumulative, draws[:, None] * cumulative[:, -1:], right=True)[:, 0]
    is_any_greedy = any(job.temperature == 0 for job, _ in jobs)
    ids = torch.where(greedy, logits.argmax(dim=-1), sampled) if is_any_greedy else sampled
    taken = logprobs.gather(1, ids[:, None])[:, 0]
    return list(zip(ids.tolist(), taken.tolist(), strict=True))


class LocalPolicy:
    """A model in token mode. Each conversation has a row of the cache from its first turn until it is closed.

    With all rows in use, further conversations wait for one to be closed.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PolicyTokenizer,
        *,
        name: str = "local",
        rows: int = 64,
        max_length: int = 26_624,
        threads: int = 1,
        draft_tokens: int = 0,
    ) -> None:
        """The model remains the caller's: its weights may change between turns, not within one.

        After a change of weights open new conversations: the caches of old ones belong to the old weights. On a CPU,
        `threads` above 1 decode that many shares of the rows beside each other, each on one core. With `draft_tokens` a
        pass checks up to that many guesses of the next tokens (speculative decoding by n-grams): as many as pay.
        """
        threads = min(threads, rows) if model.device.type == "cpu" else 1
        each = -(-rows // threads)
        self.max_length = max_positions(model.config, max_length)
        decoders = [open_decoder(model, rows=each, max_length=self.max_length) for _ in range(threads)]
        self.batchers = [
            Batcher(decoder, on_one_core=threads > 1, drafts=Drafts(draft_tokens) if draft_tokens else None)
            for decoder in decoders
        ]
        self.tokenizer = tokenizer
        self.name = name
        self._free = [(row, index) for row in reversed(range(each)) for index in reversed(range(threads))]
        self._waiting: list[asyncio.Future[CacheRow]] = []

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> TokenConversation:
        return _LocalConversation(self, opening, temperature=sampling.temperature, rng=np.random.default_rng(seed))

    def count_tokens(self, text: str) -> int:
        return self.tokenizer.count(text)

    def forget_drafts(self) -> None:
        """Guess as a new policy does; call it between turns.

        Guesses decide how many tokens a pass draws, so which rows share a pass, and with it the last digits of
        log-probabilities. A run that forgets them where it can be resumed has the same digits after a resume.
        """
        for batcher in self.batchers:
            if batcher.drafts is not None:
                batcher.drafts.forget()

    async def aclose(self) -> None:
        for batcher in self.batchers:
            await batcher.aclose()

    async def take_row(self) -> CacheRow:
        """A free row, as soon as there is one. The lowest comes first, so that the rows in use are close together."""
        if self._free:
            return CacheRow(*self._free.pop())
        turn: asyncio.Future[CacheRow] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            # The row may have been assigned at the moment of the cancellation.
            if turn.done() and not turn.cancelled():
                self.give_back_row(turn.result())
            raise

    def give_back_row(self, row: CacheRow) -> None:
        """Give the row to whoever waits longest, or add it to the free ones."""
        while self._waiting:
            turn = self._waiting.pop(0)
            if not turn.done():
                turn.set_result(CacheRow(row.number, row.batcher))
                return
        self._free = sorted([*self._free, (row.number, row.batcher)], reverse=True)


class _LocalConversation(TokenConversation):
    """A conversation with a row of the cache, from the first turn until it is closed."""

    def __init__(self, policy: LocalPolicy, opening: Opening, *, temperature: float, rng: np.random.Generator) -> None:
        super().__init__(
            policy.tokenizer,
            policy.tokenizer.encode_opening(opening),
            max_length=policy.max_length,
            scaffold=opening.scaffold,
        )
        self._policy = policy
        self._temperature = temperature
        self._numbers = RandomNumbers(rng)
        self._row: CacheRow | None = None

    async def draw(self, ids: Sequence[int], turn: TokenTurn, *, max_tokens: int) -> Usage:
        if self._row is None:
            self._row = await self._policy.take_row()
        job = Job(
            self._row, ids, turn=turn, max_tokens=max_tokens, temperature=self._temperature, numbers=self._numbers
        )
        cached = len(self._row.cached)
        await self._policy.batchers[self._row.batcher].run(job)
        return Usage(calls=1, input_tokens=len(ids), cached_tokens=cached, output_tokens=len(turn.ids))

    def fold(self, view: View) -> None:
        """The next turn reads what the row's cache and the new window do not share."""
        super().fold(view)
        if self._row is not None:
            self._row.learnt = 0

    def close(self) -> None:
        row = self._row
        self._row = None
        if row is not None:
            self._policy.give_back_row(row)
