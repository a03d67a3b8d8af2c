r"""Rollouts against their critical path; batched local generation against transformers' own `generate`.

OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1 python -m pytest tests/bench/test_bench_rollout.py \
    --benchmark-only --benchmark-disable-gc --benchmark-json=out.json
"""

import asyncio
import time
from collections import Counter

import numpy as np
import pytest
import torch

from rubricem_agent.policy.base import Listener, Opening
from rubricem_agent.policy.local import LocalPolicy, policy_tokenizer
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.rollout.run import RolloutContext, run_groups
from rubricem_env.domain.trajectory import Query, Snippet, ToolResult, ToolStatus
from rubricem_env.testing.episodes import writes
from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer
from rubricem_records.rollouts.sampling import Sampling

TURN_SECONDS, TOOL_SECONDS = 0.05, (0.05, 0.4)
CALLS, EPISODES = 6, 256


class SlowPolicy(ScriptedPolicy):
    """Each turn takes `TURN_SECONDS`."""

    def open(self, opening, *, sampling, seed):
        conversation = super().open(opening, sampling=sampling, seed=seed)
        emit = conversation.emit

        async def emit_late(**limits):
            await asyncio.sleep(TURN_SECONDS)
            return await emit(**limits)

        conversation.emit = emit_late
        return conversation


BATCH, TURNS, NEW_TOKENS = 32, 4, 100
PAGE = Snippet(text="The width of Tall Fox is 60 m. " * 30, title="Tall Fox", url="https://almanac.example/d1")
THOUGHT = "<think>" + "What is still open, and where could it be found? " * 12 + "</think>"
STATE = "<state_evaluation>" + "Width and depth are known; the convention is open. " * 12 + "</state_evaluation>"
SEARCHES = [f'{THOUGHT}{STATE}<call_tool name="google_search">query {n}</call_tool>' for n in range(CALLS)]
REPORT = f"{THOUGHT}{STATE}<answer>" + '<cite id="S_1">60 m</cite> and so forth. ' * 60 + "</answer>"
OBSERVATION = "<tool_output>\n" + PAGE.text + "\n</tool_output>"


class SlowTools:
    """Answers after a drawn time; keeps how long each episode has waited."""

    names = ("google_search",)

    def __init__(self):
        self._rng = np.random.default_rng(0)
        self.waited = Counter()

    async def call(self, call):
        seconds = self._rng.uniform(*TOOL_SECONDS)
        self.waited[asyncio.current_task()] += seconds
        await asyncio.sleep(seconds)
        return ToolResult(status=ToolStatus.OK, snippets=(PAGE,) * 3)


async def open_query(query, _attempt):
    return Opening("rules", query.question), "hash"


def roll_out(episodes):
    """Play the episodes; the share of the critical path that the run took, the longest episode's own waiting."""
    tools = SlowTools()
    context = RolloutContext(SlowPolicy(writes(*SEARCHES, REPORT)), tools)
    queries = [Query(question=f"{n}?") for n in range(episodes // 8)]
    began = time.perf_counter()
    groups = asyncio.run(run_groups(queries, open_query, context, group_size=8, concurrency=256))
    took = time.perf_counter() - began
    assert sum(rollout.is_valid for group in groups for rollout in group) == episodes
    return took / (max(tools.waited.values()) + (CALLS + 1) * TURN_SECONDS)


@pytest.mark.benchmark(group="episodes of 7 turns of 50 ms and 6 tool calls of 50-400 ms")
@pytest.mark.parametrize("episodes", [8, EPISODES])
def test_bench_rollouts(benchmark, episodes):
    shares = []
    benchmark.pedantic(lambda: shares.append(roll_out(episodes)), rounds=5, warmup_rounds=1)
    benchmark.extra_info["of_the_critical_path"] = round(float(np.median(shares)), 3)


def make_model(tokenizer):
    return tiny_qwen3(tokenizer.size, layers=4, hidden=128)


def endless(tokenizer):
    """The tokenizer without an end, so that both sides draw the same number of tokens."""
    tokenizer.end_ids = frozenset()
    return tokenizer


@pytest.mark.benchmark(group="32 episodes of 4 turns of 100 tokens, observations of 30 sentences")
def test_bench_local_policy(benchmark):
    tokenizer = endless(policy_tokenizer(tiny_tokenizer([PAGE.text])))
    model = make_model(tokenizer)

    async def play():
        policy = LocalPolicy(model, tokenizer, rows=BATCH)
        openings = [Opening("rules", f"How wide is river {n}?") for n in range(BATCH)]
        talks = [policy.open(opening, sampling=Sampling(), seed=n) for n, opening in enumerate(openings)]
        await asyncio.gather(*map(talk, talks))
        await policy.aclose()

    async def talk(conversation):
        for _ in range(TURNS):
            emission = await conversation.emit(max_tokens=NEW_TOKENS, listener=Listener())
            assert emission.usage.output_tokens == NEW_TOKENS
            conversation.observe(OBSERVATION)

    benchmark.pedantic(lambda: asyncio.run(play()), rounds=1)


@pytest.mark.benchmark(group="32 episodes of 4 turns of 100 tokens, observations of 30 sentences")
def test_bench_transformers_generate(benchmark):
    """The same episodes in lockstep, the whole text read again at each turn, as `generate` does by itself."""
    tokenizer = policy_tokenizer(tiny_tokenizer([PAGE.text]))
    model = make_model(tokenizer)
    observation = tokenizer.encode_foreign(OBSERVATION)

    def play():
        ids = [tokenizer.encode_opening(Opening("rules", f"How wide is river {n}?")) for n in range(BATCH)]
        for _ in range(TURNS):
            width = max(map(len, ids))
            padded = torch.tensor([[0] * (width - len(row)) + row for row in ids])
            mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])
            drawn = model.generate(
                padded,
                attention_mask=mask,
                max_new_tokens=NEW_TOKENS,
                do_sample=True,
                top_k=0,
                eos_token_id=-1,
                pad_token_id=0,
            )
            ids = [row + new + observation for row, new in zip(ids, drawn[:, width:].tolist(), strict=True)]

    benchmark.pedantic(play, rounds=1)
