"""What the tools cost, as ratios within one run.

`python -m pytest tests/bench/test_bench_tools.py --benchmark-only -s` prints the ratios; each has its bound.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import mcp
import pytest

from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolResult, ToolStatus
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.testing.episodes import ScriptedTool, run_scripted_episode
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.tools.base import LocalToolbox
from rubricem_env.tools.cache import CachedTool
from rubricem_env.tools.cache_stores import InMemoryCache
from rubricem_env.tools.guard import GuardedTool
from rubricem_env.tools.mcp_client import McpLink, McpToolbox
from rubricem_env.tools.mcp_server import http_app, tool_server
from rubricem_env.tools.mcp_session import open_http
from rubricem_env.tools.render import render_observation
from tests.fakes import ScriptedBackend

FIVE = ToolResult(
    status=ToolStatus.OK,
    summary="The Tall Fox is a river. " * 10,
    snippets=tuple(
        Snippet(text="The Tall Fox is 60 m wide. " * 8, title=f"Sheet {n}", url=f"https://a.example/{n}")
        for n in range(5)
    ),
)
CALL = ToolCall(name="google_search", query="Tall Fox width")


def server_of(tool: ScriptedTool):
    toolbox = LocalToolbox(tool)
    return tool_server(toolbox, toolbox.specs)


def link_to(url: str) -> McpLink:
    return McpLink("bench", lambda: open_http(f"{url}/mcp"), timing=Timing.real(0))


def say(line: str) -> None:
    sys.stderr.write(f"\n{line}\n")


async def seconds_per_call(call: Callable[[], Awaitable[object]], times: int) -> float:
    """The median of five rounds."""
    rounds = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(times):
            await call()
        rounds.append((time.perf_counter() - started) / times)
    return statistics.median(rounds)


@pytest.mark.benchmark(group="tools")
def test_bench_a_kept_connection_against_a_new_one_per_call(benchmark):
    async def measure() -> tuple[float, float]:
        with serve_loopback(http_app(server_of(ScriptedTool(lambda _: FIVE)), token=None)) as url:

            async def call_anew() -> None:
                fresh = await McpToolbox.connect(link_to(url))
                await fresh.call(CALL)
                await fresh.aclose()

            kept = await McpToolbox.connect(link_to(url))
            pooled = await seconds_per_call(lambda: kept.call(CALL), 40)
            await kept.aclose()
            return pooled, await seconds_per_call(call_anew, 5)

    pooled, anew = benchmark.pedantic(lambda: asyncio.run(measure()), rounds=1)
    say(f"pooled {pooled * 1e3:.2f} ms, new connection {anew * 1e3:.2f} ms: {anew / pooled:.1f} times")
    assert anew / pooled > 2


@pytest.mark.benchmark(group="tools")
def test_bench_256_episodes_of_ten_calls_against_their_critical_path(benchmark):
    async def measure() -> float:
        tool = ScriptedTool(lambda _: FIVE, delay=0.05)
        store = InMemoryCache(time.time)
        toolbox = LocalToolbox(CachedTool(tool, store, scope="bench"))

        async def episode(number: int) -> None:
            for turn in range(10):
                call = ToolCall(name="google_search", query=f"question {number}, turn {turn}")
                render_observation(await toolbox.call(call), first_id=1)

        started = time.perf_counter()
        await asyncio.gather(*(episode(number) for number in range(256)))
        return time.perf_counter() - started

    # The best of five: what neighbours on the machine take is not ours.
    seconds = benchmark.pedantic(lambda: min(asyncio.run(measure()) for _ in range(5)), rounds=1)
    # Ten calls of 50 ms one after another.
    say(f"256 episodes of ten calls: {seconds:.3f} s, {seconds / 0.5:.2f} times the critical path")
    assert seconds / 0.5 < 1.25


@pytest.mark.benchmark(group="tools")
@pytest.mark.parametrize("is_hit", [True, False], ids=["hit", "miss"])
def test_bench_what_cache_limits_and_render_add_to_an_mcp_call(benchmark, is_hit):
    async def measure() -> tuple[float, float]:
        backend = ScriptedBackend(FIVE)
        plain = GuardedTool(backend, timing=Timing.real(0))
        cached = CachedTool(plain, InMemoryCache(time.time), scope="bench")
        toolbox = LocalToolbox(cached)
        number = 0

        async def around() -> None:
            nonlocal number
            number += 0 if is_hit else 1
            result = await toolbox.call(CALL.model_copy(update={"query": f"Tall Fox {number}"}))
            render_observation(result, first_id=1)

        async with mcp.Client(server_of(ScriptedTool(lambda _: FIVE))) as client:
            bare = await seconds_per_call(lambda: client.call_tool("google_search", {"query": "Tall Fox"}), 200)
            ours = await seconds_per_call(around, 500)
            bare = min(
                bare, await seconds_per_call(lambda: client.call_tool("google_search", {"query": "Tall Fox"}), 200)
            )
        asked = await seconds_per_call(lambda: backend.answer(CALL), 500)
        return bare, ours if is_hit else ours - asked

    bare, ours = benchmark.pedantic(lambda: asyncio.run(measure()), rounds=1)
    kind = "hit" if is_hit else "miss"
    assert ours / bare < 0.1 if is_hit else ours / bare < 0.5
    say(f"{kind}: {ours * 1e6:.0f} us beside a bare in-memory MCP call of {bare * 1e6:.0f} us: {ours / bare:.1%}")


@pytest.mark.benchmark(group="tools")
def test_bench_eight_rollouts_that_ask_the_same(benchmark):
    async def measure() -> int:
        tool = ScriptedTool(lambda _: FIVE, delay=0.05)
        cached = CachedTool(tool, InMemoryCache(time.time), scope="bench")
        await asyncio.gather(*(run_scripted_episode(LocalToolbox(cached)) for _ in range(8)))
        return len(tool.calls)

    calls = benchmark.pedantic(lambda: asyncio.run(measure()), rounds=1)
    say(f"eight rollouts with two google searches each: {calls} calls of the engine")
    assert calls == 2
