"""256 episodes at once against a search server in another process: python -m tests.bench.tool_load [--episodes 256].

Each episode makes four calls, one after another. `plain` asks through mcp's own client over one session, `ours` through
McpToolbox, with its limits, retries and typed results, and `rendered` through a cache and with the observation that a
policy reads. In turn, three rounds; calls a second and p99 are of the best round, processor time is this process's.
One lost connection ends mcp's session and all calls that wait in it. `plain` gets a new session each round, and a round
whose session was lost is counted as that and not measured; the other two connect again by themselves.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import mcp
import numpy as np
import uvicorn

from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.testing.episodes import ScriptedTool
from rubricem_env.testing.loopback import free_port
from rubricem_env.tools.base import LocalToolbox
from rubricem_env.tools.cache import CachedTool
from rubricem_env.tools.cache_stores import InMemoryCache
from rubricem_env.tools.mcp_client import McpLink, McpToolbox
from rubricem_env.tools.mcp_server import http_app
from rubricem_env.tools.mcp_session import open_http
from rubricem_env.tools.render import render_observation
from tests.bench.judge_tail import wait_for
from tests.bench.test_bench_tools import FIVE, server_of

CALLS = 4
ROUNDS = 3


def serve(port: int) -> None:
    app = http_app(server_of(ScriptedTool(lambda _: FIVE)), token=None)
    uvicorn.run(app, port=port, log_level="critical", access_log=False, timeout_keep_alive=300)


async def load(episodes: int, ask: Callable[[str], Awaitable[object]]) -> tuple[float, float, float]:
    """Calls a second, p99 in seconds, and milliseconds of processor time a call."""
    taken: list[float] = []

    async def episode(number: int) -> None:
        for turn in range(CALLS):
            began = time.perf_counter()
            await ask(f"question {number}, turn {turn}, {began}")
            taken.append(time.perf_counter() - began)

    started, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(episode(number) for number in range(episodes)))
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    return len(taken) / seconds, float(np.quantile(taken, 0.99)), 1_000 * cpu / len(taken)


async def compare(url: str, episodes: int) -> None:
    toolbox = await McpToolbox.connect(McpLink("bench", lambda: open_http(f"{url}/mcp"), timing=Timing.real(0)))
    cached = LocalToolbox(
        *(CachedTool(tool, InMemoryCache(time.time), scope="bench") for tool in toolbox.tools.values())
    )

    async def render(query: str) -> None:
        result = await cached.call(ToolCall(name="google_search", query=query))
        assert not result.status.is_error, result.message
        render_observation(result, first_id=1)

    async def ask(query: str) -> None:
        result = await toolbox.call(ToolCall(name="google_search", query=query))
        assert not result.status.is_error, result.message

    async def load_plain() -> tuple[float, float, float]:
        async with open_http(f"{url}/mcp") as client:
            assert isinstance(client, mcp.Client)
            return await load(episodes, lambda query: client.call_tool("google_search", {"query": query}))

    ways = {"plain": load_plain, "ours": lambda: load(episodes, ask), "rendered": lambda: load(episodes, render)}
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, measure in ways.items():
            try:
                found[name].append(await measure())
            except Exception as lost:
                causes = lost
                while isinstance(causes, ExceptionGroup):
                    causes = causes.exceptions[0]
                sys.stdout.write(f"{name}: a round was lost: {type(causes).__name__} {causes}\n")
    await toolbox.aclose()
    for name, rounds in found.items():
        if not rounds:
            sys.stdout.write(f"{name}: no round was measured\n")
            continue
        calls, p99, cpu = (
            max(column) if at == 0 else min(column) for at, column in enumerate(zip(*rounds, strict=True))
        )
        sys.stdout.write(
            f"{name}: {calls:.0f} calls a second, p99 {p99:.2f} s, {cpu:.2f} ms of processor time a call\n"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--serve", type=int)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.serve)
    else:
        port = free_port()
        server = subprocess.Popen([sys.executable, "-m", "tests.bench.tool_load", "--serve", str(port)])
        try:
            wait_for(port)
            asyncio.run(compare(f"http://127.0.0.1:{port}", chosen.episodes))
        finally:
            server.terminate()
            server.wait()
