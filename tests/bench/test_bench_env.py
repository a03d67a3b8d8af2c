"""The vector environment against Gymnasium's own loop over single ones; what importing the package costs."""

import subprocess
import sys

import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rubricem_env.domain.trajectory import Query, Snippet, ToolResult, ToolStatus
from rubricem_env.env.research_env import DeepResearchEnv
from rubricem_env.env.vector import DeepResearchVectorEnv

EPISODES = 1_000
QUERIES = (Query(question="How wide is the Tall Fox?"),)
TURNS = [f'<think>t</think><call_tool name="google_search">query {number}</call_tool>' for number in range(9)]
TURNS.append("<think>t</think><answer>60 m</answer>")


class InstantToolbox:
    """Answers at once, so that only the environment is measured."""

    names = ("google_search",)

    async def call(self, call):
        return ToolResult(status=ToolStatus.OK, snippets=(Snippet(text="The width of Tall Fox is 60 m."),))


def play(envs) -> None:
    envs.reset(seed=0)
    for text in TURNS:
        _, _, terminated, _, _ = envs.step((text,) * EPISODES)
    assert terminated.all()


@pytest.mark.benchmark(group="1,000 episodes of ten turns, instant tools")
def test_bench_vector_environment(benchmark):
    envs = DeepResearchVectorEnv(EPISODES, queries=QUERIES, toolbox=InstantToolbox())
    benchmark.pedantic(play, args=(envs,), rounds=3, warmup_rounds=1)
    envs.close()


@pytest.mark.benchmark(group="1,000 episodes of ten turns, instant tools")
def test_bench_gymnasium_sync_vector_env(benchmark):
    def make() -> DeepResearchEnv:
        return DeepResearchEnv(queries=QUERIES, toolbox=InstantToolbox())

    envs = SyncVectorEnv([make] * EPISODES, autoreset_mode=AutoresetMode.DISABLED)
    benchmark.pedantic(play, args=(envs,), rounds=3, warmup_rounds=1)
    envs.close()


@pytest.mark.benchmark(group="import")
@pytest.mark.parametrize("modules", ["gymnasium, pydantic", "rubricem_env"])
def test_bench_import(benchmark, modules):
    benchmark.pedantic(
        subprocess.run,
        args=([sys.executable, "-c", f"import {modules}"],),
        kwargs={"check": True},
        rounds=7,
        warmup_rounds=1,
    )
