"""A server of episodes and its client, offline: python -m docs.adapters.openenv_episodes.

The server runs as a process of its own, as it would on another machine; each attempt has a session.
"""

import asyncio
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from docs.adapters.tutor import ATTEMPTS, Tutor, tutored_query, tutored_questions
from rubricem_env.adapters.gathering import GatheringScorer
from rubricem_env.adapters.openenv import ResearchAction, ResearchClient, ResearchObservation, research_app
from rubricem_env.adapters.session import make_setup
from rubricem_env.judge.buffer import RubricBuffer
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.judge.scorer import GroupScorer
from rubricem_env.judge.step import StepJudge
from rubricem_env.testing.loopback import free_port

TOKEN = "almanac"


def make_app():
    """What uvicorn serves: groups of four, judged by rules when the fourth attempt is over."""
    query = tutored_query()
    scorer = GroupScorer(StepJudge(RulesJudge(), RubricBuffer()), {query.key: query})
    patience = float(os.environ.get("RUBRICEM_PATIENCE", "120"))
    setup = make_setup(reward="answer", scorer=GatheringScorer(scorer, len(ATTEMPTS), patience=patience))
    return research_app(setup, max_sessions=80, token=TOKEN)


@contextmanager
def serve(**environment: str) -> Iterator[str]:
    """The server as a process; gives its address."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", "docs.adapters.openenv_episodes:make_app"]
    command += ["--port", str(port), "--log-level", "error"]
    server = subprocess.Popen(command, env={**os.environ, **environment})
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=20)


async def attempt(url: str, place: int) -> ResearchObservation:
    """One episode to its end."""
    write = Tutor(tutored_questions()[tutored_query().question], place)
    async with ResearchClient(url, token=TOKEN) as client:
        result = await client.reset(query_key=tutored_query().key)
        while not result.done:
            result = await client.step(ResearchAction(text=write(result.observation.text)))
        return result.observation


def _wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    """Up to three minutes: on a busy machine OpenEnv's first import takes one."""
    ends = time.monotonic() + 180
    while True:
        try:
            urllib.request.urlopen(address, timeout=2).read()
        except OSError:
            if server.poll() is not None or time.monotonic() > ends:
                raise
            time.sleep(0.1)
        else:
            return


async def _group(url: str) -> list[ResearchObservation]:
    return list(await asyncio.gather(*(attempt(url, place) for place in range(len(ATTEMPTS)))))


def main() -> None:
    """One group of four; says reward and stage scores of each."""
    with serve() as url:
        for observation in asyncio.run(_group(url)):
            scores = {name: round(score or 0.0, 3) for name, score in observation.stage_scores.items()}
            sys.stdout.write(f"reward {observation.reward:.3f}, stages {scores}\n")


if __name__ == "__main__":
    main()
