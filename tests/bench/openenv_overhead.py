"""What OpenEnv's part of an episode costs, and what this project's: processor time, each kind in turn, and a profile.

    .venv-openenv/bin/python -m tests.bench.openenv_overhead [--rounds 60] [--profile]

Four attempts of the almanac, 15 turns in all, are written beforehand; there is no judge. `bare` is the episode alone.
`minimal` is an environment of OpenEnv's own kind over the episode; its observations have the same fields and values.
`ours` is this project's adapter. Each is played in process, and through OpenEnv's client and server over a websocket;
client and server share one event loop and one thread, so that a profile sees both.
"""

import argparse
import asyncio
import contextlib
import cProfile
import gc
import pstats
import random
import sys
import time
from collections import defaultdict
from pathlib import Path

import uvicorn
from openenv.core import EnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, ConcurrencyConfig, Observation, State
from pydantic import Field

from rubricem_env.adapters.openenv import ResearchAction, ResearchClient, ResearchEnvironment, research_app
from rubricem_env.env.episode import Episode
from rubricem_env.env.spec import make_env_spec
from rubricem_env.env.step import advance, step_info
from rubricem_env.testing import free_port
from rubricem_env.world.offline import shipped_toolbox
from tests.bench.adapter_attempts import ATTEMPTS_MADE, QUERY
from tests.bench.test_bench_adapters import play_bare

ENV_SPEC = make_env_spec()


class Turn(Action):
    text: str


class Read(Observation):
    text: str
    query_key: str
    system: str = ""
    stage_scores: dict[str, float | None] = Field(default_factory=dict)
    unscored: dict[str, str] = Field(default_factory=dict)
    facts: dict[str, str | int] = Field(default_factory=dict)


NO_SCORES = {"plan": None, "research": None, "review": None, "answer": None}


class MinimalEnvironment(Environment):
    """The episode, and an observation of OpenEnv's for each turn; nothing is checked or kept beyond that."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    async def reset_async(self, seed=None, episode_id=None, *, query_key=None):
        self.episode = Episode(QUERY)
        self.counted = State(episode_id=episode_id, query_key=query_key)
        return Read(text=QUERY.question, query_key=query_key)

    async def step_async(self, action, timeout_s=None):
        reply = await advance(self.episode, shipped_toolbox(), action.text)
        self.counted.step_count += 1
        over = self.episode.is_over
        return Read(
            text=reply.observation,
            done=over,
            reward=0.0,
            query_key=QUERY.key,
            stage_scores=NO_SCORES if over else {},
            facts=step_info(self.episode),
        )

    reset = step = state = None


class MinimalClient(EnvClient):
    def _step_payload(self, action):
        return {"text": action.text}

    def _parse_result(self, payload):
        facts = {"done": payload.get("done", False), "reward": payload.get("reward")}
        return StepResult(observation=Read(**payload["observation"], **facts), **facts)

    def _parse_state(self, payload):
        return State(**payload)


def in_process(environment, action):
    async def play():
        env = environment()
        for turns in ATTEMPTS_MADE:
            await env.reset_async(query_key=QUERY.key)
            for turn in turns:
                observation = await env.step_async(action(text=turn))
            assert observation.done
        return observation

    return play


def through(client, action):
    async def play():
        for turns in ATTEMPTS_MADE:
            result = await client.reset(query_key=QUERY.key)
            for turn in turns:
                result = await client.step(action(text=turn))
            assert result.done
        return result.observation

    return play


@contextlib.asynccontextmanager
async def served(app, client):
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    async with client(f"http://127.0.0.1:{port}") as connected:
        yield connected
    server.should_exit = True
    await serving


async def least(kinds, rounds):
    """The least processor time of each, in seconds; one of each kind in turn, so that all see the same machine."""
    taken = defaultdict(list)
    order = list(kinds.items())
    for number in range(rounds + 10):
        gc.collect(0)
        random.Random(number).shuffle(order)
        for name, play in order:
            start = time.process_time()
            await play()
            if number >= 10:
                taken[name].append(time.process_time() - start)
    return {name: min(taken[name]) for name in kinds}


def owner(path):
    """Whose file a function is in."""
    if "site-packages/" in path:
        return path.split("site-packages/")[1].split("/")[0].removesuffix(".py")
    if "rubricem_env/adapters" in path:
        return "rubricem_env.adapters"
    if "rubricem_env" in path:
        return "rubricem_env, the episode"
    return "asyncio" if "asyncio/" in path else "python"


async def profile(name, play, rounds):
    """Own time by owner, and the functions with the most own time; a builtin is counted for its callers."""
    watched = cProfile.Profile()
    watched.enable()
    for _ in range(rounds):
        await play()
    watched.disable()
    stats = pstats.Stats(watched).stats
    whole = sum(own for _, _, own, _, _ in stats.values())
    owned, by_function = defaultdict(float), defaultdict(float)
    for (path, line, function), (_, _, own, _, callers) in stats.items():
        at = [(*key, spent[2]) for key, spent in callers.items()] if path == "~" and callers else []
        for caller_path, caller_line, caller, spent in at or [(path, line, function, own)]:
            owned[owner(caller_path)] += spent
            inside = f", in {caller}" if at else ""
            where = f"{owner(caller_path)} {Path(caller_path).name}:{caller_line}"
            by_function[f"{where} {function}{inside}"] += spent
    sys.stdout.write(f"\n{name}: {whole / rounds * 1e3:.2f} ms under the profiler\n")
    for each, spent in sorted(owned.items(), key=lambda pair: -pair[1])[:12]:
        sys.stdout.write(f"  {spent / whole:6.1%}  {each}\n")
    for each, spent in sorted(by_function.items(), key=lambda pair: -pair[1])[:16]:
        sys.stdout.write(f"  {spent / whole:6.1%}  {each}\n")


async def compare(rounds, profiled):
    """Seconds of each kind over connections of their own, after a check that all return the same observation."""
    limits = ConcurrencyConfig(max_concurrent_envs=256, session_timeout=1_800.0)
    minimal_app = create_app(MinimalEnvironment, Turn, Read, env_name="minimal", concurrency_config=limits)
    async with served(minimal_app, MinimalClient) as theirs, served(research_app(ENV_SPEC), ResearchClient) as ours:
        kinds = {
            "bare": play_bare,
            "minimal, in process": in_process(MinimalEnvironment, Turn),
            "ours, in process": in_process(lambda: ResearchEnvironment(ENV_SPEC), ResearchAction),
            "minimal, served": through(theirs, Turn),
            "ours, served": through(ours, ResearchAction),
        }
        payloads = [(await play()).model_dump() for name, play in kinds.items() if name != "bare"]
        assert all(each == payloads[0] for each in payloads), payloads
        times = await least(kinds, rounds)
        for name in ("minimal, served", "ours, served") if profiled else ():
            await profile(name, kinds[name], rounds)
        return times


async def main(arguments):
    gc.disable()
    blocks = [
        await compare(arguments.rounds, arguments.profile and number == 0) for number in range(arguments.connections)
    ]
    times = {name: min(block[name] for block in blocks) for name in blocks[0]}
    for name, spent in times.items():
        sys.stdout.write(f"{name:20} {spent * 1e3:6.2f} ms, {spent / times['bare']:.2f} of bare\n")
    for where in ("in process", "served"):
        each = [block[f"ours, {where}"] / block[f"minimal, {where}"] for block in blocks]
        ratio = times[f"ours, {where}"] / times[f"minimal, {where}"]
        told = ", ".join(f"{one:.3f}" for one in each)
        sys.stdout.write(f"ours over minimal, {where}: {ratio:.3f}; with each connection {told}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.openenv_overhead", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="rounds with each connection")
    parser.add_argument("--connections", type=int, default=5, help="times that both servers are started anew")
    parser.add_argument("--profile", action="store_true")
    asyncio.run(main(parser.parse_args()))
