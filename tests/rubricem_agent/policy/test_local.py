"""A real Qwen3 of random weights: own decode against transformers, batches, caches, sampling."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers.utils.logging import enable_progress_bar

from rubricem_agent.policy.base import TINY, Listener, Opening
from rubricem_agent.policy.decoder import Feed
from rubricem_agent.policy.dense_decoder import DenseDecoder
from rubricem_agent.policy.drafts import common_prefix
from rubricem_agent.policy.local import (
    Batcher,
    CacheRow,
    Job,
    LocalPolicy,
    RandomNumbers,
    draw_tokens,
    load_model,
    load_tokenizer,
)
from rubricem_agent.wiring.teacher_data import load_chat_tokenizer
from rubricem_env.domain.errors import ConfigError, ModelError
from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer
from rubricem_records.rollouts.sampling import Sampling
from tests.rubricem_agent.policy.shared import OBSERVATION, check_logprobs, ids_of, turn


def test_loading_prints_nothing_since_commands_with_quiet_have_failures_alone_on_the_error_stream(capsys):
    enable_progress_bar()
    load_model(Path(TINY))
    load_chat_tokenizer(TINY)("word " * 30_000)
    assert capsys.readouterr() == ("", "")


def reference(model, ids):
    with torch.inference_mode():
        return model(torch.tensor([list(ids)])).logits[0].float()


@pytest.fixture
async def policy(model, tokenizer):
    made = LocalPolicy(model, tokenizer, rows=4, max_length=2_000)
    yield made
    await made.aclose()


def test_rows_of_different_length_have_the_logits_of_transformers(model):
    decoder = DenseDecoder(model, rows=9, max_length=500)
    rows = {0: range(3, 40), 1: range(10, 21), 8: range(50, 130)}
    logits = decoder.logits([Feed(row, 0, list(ids)) for row, ids in rows.items()])
    for got, ids in zip(logits, rows.values(), strict=True):
        torch.testing.assert_close(got, reference(model, ids)[-1], atol=1e-5, rtol=0)


def test_a_cache_that_is_continued_and_outgrows_its_first_size_has_them_too(model):
    decoder = DenseDecoder(model, rows=2, max_length=3_000)
    ids = np.random.default_rng(0).integers(3, 300, 1_300).tolist()
    decoder.logits([Feed(1, 0, ids[:900])])
    decoder.logits([Feed(0, 0, ids[:5]), Feed(1, 900, ids[900:901])])
    logits = decoder.logits([Feed(1, 901, ids[901:])])
    torch.testing.assert_close(logits[0], reference(model, ids)[-1], atol=1e-5, rtol=0)


def test_rows_of_the_cache_are_allocated_as_they_are_used(model):
    decoder = DenseDecoder(model, rows=64, max_length=3_000)
    held = []
    for row in (0, 1, 2, 20):
        decoder.logits([Feed(row, 0, [5, 6])])
        held.append(len(decoder._keys[0]))
    assert held == [1, 2, 4, 21]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_log_probabilities_are_those_of_transformers_at_the_temperature(policy, model, opening, temperature):
    conversation = policy.open(opening, sampling=Sampling(temperature=temperature), seed=1)
    await turn(conversation, 24)
    conversation.observe(OBSERVATION)
    await turn(conversation, 24)
    assert check_logprobs(conversation, model, temperature, abs=1e-5) > 2


async def test_a_later_turn_reads_only_what_is_new(policy, opening):
    conversation = policy.open(opening, sampling=Sampling(), seed=1)
    await turn(conversation, 24)
    before = len(ids_of(conversation))
    conversation.observe(OBSERVATION)
    second = await turn(conversation, 24)
    # All but the last token drawn was fed to the model, and so cached, in the first turn.
    assert second.usage.cached_tokens == before - 1


async def test_what_a_seed_draws_does_not_depend_on_the_company(policy, opening):
    alone = policy.open(opening, sampling=Sampling(), seed=7)
    await turn(alone, 24)
    alone.close()
    crowd = [policy.open(opening, sampling=Sampling(), seed=seed) for seed in (5, 6, 7)]
    await asyncio.gather(*(turn(one, 24) for one in crowd))
    assert ids_of(crowd[2]) == ids_of(alone)


async def test_two_threads_draw_what_one_draws(policy, model, tokenizer, opening):
    two = LocalPolicy(model, tokenizer, rows=4, max_length=2_000, threads=2)
    drawn = []
    for player in (policy, two):
        crowd = [player.open(opening, sampling=Sampling(), seed=seed) for seed in range(6)]
        turns = [asyncio.create_task(turn(one, 24)) for one in crowd]
        for one, task in zip(crowd, turns, strict=True):
            await task
            one.close()
        drawn.append([ids_of(one) for one in crowd])
    await two.aclose()

    assert drawn[0] == drawn[1]
    # Two rows for each thread, and each was used.
    assert [batcher._decoder.rows for batcher in two.batchers] == [2, 2]
    assert all(batcher._decoder._keys for batcher in two.batchers)


class Counting(DenseDecoder):
    """Notes the tokens of each row of each pass."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.widths = []

    def logits(self, feeds):
        self.widths.append([len(feed.ids) for feed in feeds])
        return super().logits(feeds)


async def test_on_a_gpu_rows_that_read_wait_for_each_other_and_draw_the_same(model, tokenizer, opening):
    drawn, passes = [], []
    for on_gpu in (False, True):
        decoder = Counting(model, rows=16, max_length=2_000)
        policy = LocalPolicy(model, tokenizer, rows=16, max_length=2_000)
        policy.batchers = [Batcher(decoder)]
        policy.batchers[0]._on_gpu = on_gpu
        crowd = [policy.open(opening, sampling=Sampling(), seed=seed) for seed in range(16)]

        async def play(one, count):
            await turn(one, count)
            one.observe(OBSERVATION)
            await turn(one, 30)

        # Each of them reads its observation at another moment.
        await asyncio.gather(*(play(one, 10 + 2 * index) for index, one in enumerate(crowd)))
        await policy.aclose()
        drawn.append([ids_of(one) for one in crowd])
        passes.append(len(decoder.widths))
    assert drawn[0] == drawn[1]
    assert passes[1] < passes[0]


@pytest.mark.parametrize("threads", [1, 2])
async def test_drafts_change_the_number_of_passes_and_nothing_that_is_drawn(model, tokenizer, opening, threads):
    async def play(policy):
        crowd = [policy.open(opening, sampling=Sampling(), seed=seed) for seed in range(4)]
        for _ in range(2):
            await asyncio.gather(*(turn(one, 40) for one in crowd))
            for one in crowd:
                one.observe(OBSERVATION)
        for one in crowd:
            one.close()
        logprobs = [logprob for one in crowd for piece in one.pieces for logprob in piece.logprobs]
        return [ids_of(one) for one in crowd], logprobs

    played, passes = [], []
    for draft_tokens in (0, 3):
        policy = LocalPolicy(model, tokenizer, rows=4, max_length=2_000, threads=threads, draft_tokens=draft_tokens)
        for batcher in policy.batchers:
            batcher._decoder = Counting(model, rows=4, max_length=2_000)
        # What was played once is known, so the drafts of the second time are right.
        for _ in range(2):
            before = sum(len(batcher._decoder.widths) for batcher in policy.batchers)
            played.append(await play(policy))
            passes.append(sum(len(batcher._decoder.widths) for batcher in policy.batchers) - before)
        await policy.aclose()
    first, first_logprobs = played[0]
    for ids, logprobs in played[1:]:
        assert ids == first
        assert logprobs == pytest.approx(first_logprobs, abs=1e-5)
    # A token that a random number drew against the odds follows the same tokens only once.
    assert passes[3] < 0.5 * passes[1]


async def test_one_conversation_is_drafted_even_where_most_guesses_are_wrong(model, tokenizer, opening):
    policy = LocalPolicy(model, tokenizer, rows=2, max_length=2_000, draft_tokens=3)
    counting = policy.batchers[0]._decoder = Counting(model, rows=2, max_length=2_000)
    await turn(policy.open(opening, sampling=Sampling(), seed=1), 30)
    await policy.aclose()
    prompt = len(tokenizer.encode_opening(opening))
    read = sum(1 for widths in counting.widths if sum(widths) > 4)
    assert read == -(-prompt // 256)
    assert counting.widths[read:] == [[4]] * (len(counting.widths) - read)


async def test_many_conversations_are_drafted_only_as_long_as_the_guesses_pay(model, tokenizer, opening):
    policy = LocalPolicy(model, tokenizer, rows=32, max_length=2_000, draft_tokens=3)
    counting = policy.batchers[0]._decoder = Counting(model, rows=32, max_length=2_000)

    async def play(sampling, first_seed):
        before = len(counting.widths)
        crowd = [policy.open(opening, sampling=sampling, seed=first_seed + number) for number in range(32)]
        await asyncio.gather(*(turn(one, 40) for one in crowd))
        for one in crowd:
            one.close()
        return [set(widths) for widths in counting.widths[before:] if max(widths) <= 4]

    # This model draws its words at random, and at temperature 0 it repeats them.
    random = await play(Sampling(), 0)
    repeated = await play(Sampling(temperature=0.0), 100) + await play(Sampling(temperature=0.0), 100)
    await policy.aclose()
    # The first pass reads the end of the prompt.
    assert [random[1], random[-1], repeated[1], repeated[-1]] == [{4}, {1}, {1}, {4}]
    assert all(len(widths) == 1 for widths in (*random, *repeated))


async def test_a_conversation_at_its_limit_is_drafted_no_further(model, tokenizer, opening):
    prompt = len(tokenizer.encode_opening(opening))
    drawn = []
    for draft_tokens in (0, 3):
        policy = LocalPolicy(model, tokenizer, rows=1, max_length=prompt + 6, draft_tokens=draft_tokens)
        conversation = policy.open(opening, sampling=Sampling(), seed=3)
        await turn(conversation, 50)
        await policy.aclose()
        drawn.append(ids_of(conversation))
    assert drawn[0] == drawn[1]


def test_random_numbers_that_were_not_used_come_again():
    numbers, same = RandomNumbers(np.random.default_rng(4)), np.random.default_rng(4)
    expected = [same.random() for _ in range(5)]
    assert numbers.peek(3) == expected[:3]
    numbers.use()
    assert numbers.peek(4) == expected[1:]
    assert numbers.peek(2) == expected[1:3]


async def test_each_beginning_is_read_once_however_many_share_it(model, tokenizer):
    policy = LocalPolicy(model, tokenizer, rows=6, max_length=2_000)
    counting = policy.batchers[0]._decoder = Counting(model, rows=6, max_length=2_000)
    questions = ["How wide is the river Tall Fox? " * 30, "Who maps the river Low Owl? " * 30]
    openings = [Opening("Search, then answer. " * 20, question) for question in questions]
    conversations = [policy.open(one, sampling=Sampling(), seed=seed) for seed in range(3) for one in openings]
    await asyncio.gather(*(turn(conversation, max_tokens=3) for conversation in conversations))
    await policy.aclose()
    first, second = (tokenizer.encode_opening(one) for one in openings)
    alike = common_prefix(first, second)
    # One reads the first question, one what the second has of its own; the four others a token at a time, as all draw.
    read = [size for widths in counting.widths for size in widths]
    assert sum(size for size in read if size > 1) == len(first) + len(second) - alike


async def test_more_conversations_than_rows_wait_for_one_to_close(policy, opening):
    async def play(seed):
        conversation = policy.open(opening, sampling=Sampling(), seed=seed)
        emission = await turn(conversation, max_tokens=5)
        conversation.close()
        return emission.usage.output_tokens

    assert all(await asyncio.gather(*map(play, range(9))))


async def test_temperature_zero_takes_the_likeliest_token(policy, model, opening):
    conversation = policy.open(opening, sampling=Sampling(temperature=0), seed=1)
    await turn(conversation, max_tokens=1)
    prompt, drawn = conversation.pieces
    assert drawn.ids[0] == reference(model, prompt.ids)[-1].argmax().item()


async def test_draws_follow_the_probabilities(tokenizer):
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2]])).expand(4_000, -1)
    numbers = RandomNumbers(np.random.default_rng(0))
    job = Job(CacheRow(0), [1, 2], turn=None, max_tokens=4_000, temperature=1.0, numbers=numbers)
    drawn = [token_id for token_id, _ in draw_tokens(logits, [(job, 4_000)])]
    shares = np.bincount(drawn, minlength=3) / 4_000
    # Three standard errors of 0.5 over 4,000 draws are 0.024.
    assert shares == pytest.approx([0.5, 0.3, 0.2], abs=0.024)


async def test_a_failure_of_the_model_is_typed_and_the_next_turn_works(model, tokenizer, opening):
    policy = LocalPolicy(tiny_qwen3(tokenizer.size), tokenizer, rows=1)
    broken = policy.open(opening, sampling=Sampling(), seed=0)
    broken._ids[0] = 10**6
    with pytest.raises(ModelError, match="could not run the local model"):
        await turn(broken)
    broken.close()
    assert (await turn(policy.open(opening, sampling=Sampling(), seed=0), 3)).usage.output_tokens == 3
    await policy.aclose()


def test_a_saved_folder_loads_as_model_and_tokenizer(tmp_path, opening):
    saved = tiny_tokenizer()
    tiny_qwen3(len(saved)).save_pretrained(tmp_path)
    saved.save_pretrained(tmp_path)
    assert load_model(tmp_path).config.vocab_size == len(saved)
    assert load_tokenizer(tmp_path).size == len(saved)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no config\.json"):
        load_model(tmp_path)
    with pytest.raises(ConfigError, match="holds no tokenizer"):
        load_tokenizer(tmp_path)


def test_sequences_are_compared_to_where_they_part():
    assert [common_prefix([1, 2, 3], other) for other in ([1, 2, 4], [1, 2, 3, 4], [], [2])] == [2, 3, 0, 0]


async def test_a_row_assigned_at_the_moment_of_a_cancellation_is_not_lost(model, tokenizer):
    policy = LocalPolicy(model, tokenizer, rows=1)
    row = await policy.take_row()
    waiting = asyncio.create_task(policy.take_row())
    await asyncio.sleep(0)
    policy.give_back_row(row)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(5):
        assert (await policy.take_row()).number == row.number


class Deaf(Listener):
    """Fails at the first word, as a screen does whose pipe is closed."""

    def wrote(self, text):
        raise BrokenPipeError


async def test_a_listener_that_fails_ends_its_own_turn_alone(policy, opening):
    one, other = (policy.open(opening, sampling=Sampling(), seed=seed) for seed in (1, 2))
    async with asyncio.timeout(60):
        failed, told = await asyncio.gather(
            one.emit(max_tokens=24, listener=Deaf()), turn(other, 24), return_exceptions=True
        )
    assert isinstance(failed, ModelError)
    assert told.usage.output_tokens > 0


async def test_a_failure_spares_the_turn_that_took_a_cancelled_ones_row(policy):
    batcher = policy.batchers[0]
    gone, heir = SimpleNamespace(row=CacheRow(0)), SimpleNamespace(row=CacheRow(0))
    gone.done = asyncio.get_running_loop().create_future()
    gone.done.cancel()
    batcher._jobs[0] = heir
    batcher._fail([gone], ModelError("out of memory"))
    assert batcher._jobs.pop(0) is heir
