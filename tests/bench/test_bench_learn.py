"""What learning costs apart from the model: advantages, the head, batches, the order of questions, reflections.

veRL is not installed here: `grpo_advantages` is the usual torch estimator, written as veRL's is (a sum over the
tokens, statistics by prompt in a dictionary, a loop over the rows, one number broadcast over the response mask).
"""

import asyncio
import subprocess
import sys
import time
from collections import defaultdict

import numpy as np
import pytest
import torch

from rubricem_agent.learn.credit import assign_credit, spread_to_tokens
from rubricem_agent.learn.curriculum import Curriculum
from rubricem_agent.learn.deferred import Deferred, Ticket
from rubricem_agent.learn.samples import Sample, pad_batch
from trainers.local.packed import pack_samples

GROUPS, GROUP_SIZE, LENGTH = 32, 8, 18_432
ROLLOUTS = GROUPS * GROUP_SIZE
ADVANTAGES = "advantages of 256 rollouts of 18,432 tokens"


def stage_ids_of_rollouts() -> np.ndarray:
    """Each rollout: 24 runs, the policy's and the tools' in turn, through the four stages."""
    rng = np.random.default_rng(0)
    ids = np.full((ROLLOUTS, LENGTH), -1, dtype=np.int8)
    for row in ids:
        cuts = np.sort(rng.integers(0, LENGTH, 25))
        for run in range(0, 24, 2):
            row[cuts[run] : cuts[run + 1]] = run // 6
    return ids


def grpo_advantages(rewards: torch.Tensor, mask: torch.Tensor, *, prompts: np.ndarray) -> torch.Tensor:
    scores = rewards.sum(dim=-1)
    by_prompt = defaultdict(list)
    with torch.no_grad():
        for row, prompt in enumerate(prompts):
            by_prompt[prompt].append(scores[row])
        statistics = {prompt: (torch.stack(kept).mean(), torch.stack(kept).std()) for prompt, kept in by_prompt.items()}
        for row, prompt in enumerate(prompts):
            mean, std = statistics[prompt]
            scores[row] = (scores[row] - mean) / (std + 1e-6)
        return scores.unsqueeze(-1) * mask


@pytest.mark.benchmark(group=ADVANTAGES)
def test_bench_stage_advantages(benchmark):
    ids, scores = stage_ids_of_rollouts(), np.random.default_rng(1).random((ROLLOUTS, 4))
    groups = np.repeat(np.arange(GROUPS), GROUP_SIZE)
    tokens = benchmark(lambda: spread_to_tokens(assign_credit(scores, groups=groups).advantages, ids))
    assert tokens.shape == (ROLLOUTS, LENGTH)


@pytest.mark.benchmark(group=ADVANTAGES)
def test_bench_usual_grpo_estimator(benchmark):
    torch.set_num_threads(1)
    mask = torch.from_numpy(stage_ids_of_rollouts() >= 0).float()
    rewards = torch.zeros(ROLLOUTS, LENGTH)
    rewards[:, -1] = torch.rand(ROLLOUTS)
    prompts = np.array([str(row // GROUP_SIZE) for row in range(ROLLOUTS)], dtype=object)
    tokens = benchmark(lambda: grpo_advantages(rewards, mask, prompts=prompts))
    assert tokens.shape == (ROLLOUTS, LENGTH)


@pytest.mark.benchmark(group="a batch of 256 rollouts of up to 18,432 tokens")
def test_bench_padding_and_packing(benchmark):
    rng = np.random.default_rng(2)
    samples = []
    for ids in stage_ids_of_rollouts():
        width = int(rng.integers(LENGTH // 4, LENGTH))
        ids[0] = -1
        samples.append(Sample(ids[:width], ids[:width], np.zeros(width), np.zeros(width), 1.0, 0))
    benchmark.pedantic(lambda: pack_samples(pad_batch(samples, pad_id=0), max_tokens=26_624), rounds=5)


@pytest.mark.benchmark(group="a thousand steps of 32 questions out of 4,900")
def test_bench_curriculum(benchmark):
    keys = [f"{index:064x}" for index in range(4_900)]

    def thousand_steps() -> None:
        stream = Curriculum(keys, batch_size=32, window=3, rng=np.random.default_rng(0))
        for _ in range(1_000):
            next(stream)

    benchmark.pedantic(thousand_steps, rounds=5)


HEAD = """
import pathlib, sys, time, torch
from trainers.local.packed import token_logprobs
torch.set_num_threads(1)
torch.manual_seed(0)
way, length, width, vocabulary = sys.argv[1], 2048, 128, 151_936
hidden = torch.randn(length, width, requires_grad=True)
head = torch.randn(vocabulary, width, requires_grad=True)
targets, temperature = torch.randint(0, vocabulary, (length,)), torch.ones(length)
def kib(name):
    rows = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith(name))
before = kib("VmRSS")
start = time.perf_counter()
if way == "tiled":
    logprobs, entropy = token_logprobs(hidden, head, targets=targets, temperature=temperature, tile_elements=2**22)
else:
    spread = (hidden @ head.T / temperature[:, None]).log_softmax(-1)
    logprobs = spread.gather(1, targets[:, None])[:, 0]
    with torch.no_grad():
        entropy = -(spread.exp() * spread).sum(-1)
logprobs.mean().backward()
seconds = time.perf_counter() - start
print(seconds, (kib("VmHWM") - before) / 2**20)
"""


@pytest.mark.benchmark(group="log-probabilities of 2,048 tokens out of 151,936 words, forward and backward")
@pytest.mark.parametrize("way", ["tiled", "plain"])
def test_bench_head(benchmark, way):
    figures = []

    def fresh_process() -> None:
        answer = subprocess.run([sys.executable, "-c", HEAD, way], capture_output=True, text=True, check=True)
        figures.append([float(number) for number in answer.stdout.split()])

    benchmark.pedantic(fresh_process, rounds=3)
    benchmark.extra_info["seconds, the head alone"] = sorted(seconds for seconds, _ in figures)[1]
    benchmark.extra_info["GiB above the inputs"] = sorted(peak for _, peak in figures)[1]
    print(way, benchmark.extra_info)  # noqa: T201


ROLLOUTS_S, JUDGING_S, TASK_UPDATE_S, REFLECTING_S, REFLECTION_UPDATE_S = 0.100, 0.020, 0.030, 0.090, 0.030


async def reflect(ticket: Ticket) -> str:
    """Sample the candidates, then have them judged: waiting for servers, all of it."""
    await asyncio.sleep(REFLECTING_S)
    return ticket.key


async def train(way: str, *, steps: int) -> None:
    """The loop of appendix D on simulated latencies: updates hold a thread, all else waits for somebody."""
    deferred = Deferred(reflect, str)
    for step in range(1, steps + 1):
        rollouts = asyncio.create_task(asyncio.sleep(ROLLOUTS_S))
        if way == "deferred" and deferred.collect(step=step).done:
            await asyncio.to_thread(time.sleep, REFLECTION_UPDATE_S)
        await rollouts
        await asyncio.sleep(JUDGING_S)
        for key in "abcd" if way != "without" else "":
            deferred.launch(Ticket(step, key))
        if way == "synchronous":
            await deferred.drain()
            await asyncio.to_thread(time.sleep, REFLECTION_UPDATE_S)
        await asyncio.to_thread(time.sleep, TASK_UPDATE_S)
    await deferred.cancel()


@pytest.mark.benchmark(group="20 steps, simulated: rollouts 100 ms, judging 20, update 30, reflections 90 + 30")
@pytest.mark.parametrize("way", ["without", "deferred", "synchronous"])
def test_bench_reflections(benchmark, way):
    benchmark.pedantic(lambda: asyncio.run(train(way, steps=20)), rounds=3)
