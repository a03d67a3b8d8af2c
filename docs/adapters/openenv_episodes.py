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

from docs.adapters.openenv_server import TOKEN
from docs.adapters.tutor import ATTEMPTS, tutored_query
from docs.adapters.writers import Writer, find_writers
from rubricem_env.adapters import ResearchAction, ResearchClient, ResearchObservation
from rubricem_env.testing import free_port


@contextmanager
def serve(*app: str, **environment: str) -> Iterator[str]:
    """The server as a process; gives its address. `app` is uvicorn's, of itself the almanac's."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", *(app or ("--factory", "docs.adapters.openenv_server:make_app"))]
    command += ["--port", str(port), "--log-level", "error"]
    server = subprocess.Popen(command, env={**os.environ, **environment})
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=20)


async def attempt(url: str, write: Writer) -> ResearchObservation:
    """One episode to its end; the writer, who may take long, has a thread."""
    async with ResearchClient(url, token=TOKEN) as client:
        result = await client.reset(query_key=tutored_query().key)
        while not result.done:
            text = await asyncio.to_thread(write, result.observation.text)
            result = await client.step(ResearchAction(text=text))
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


async def _group(url: str, writers: list[Writer]) -> list[ResearchObservation]:
    return list(await asyncio.gather(*(attempt(url, write) for write in writers)))


def main() -> None:
    """One group of four; says reward and stage scores of each."""
    writers = find_writers()
    sys.stdout.write(f"written by {writers.name}\n")
    with serve() as url:
        for last in asyncio.run(_group(url, [writers.begin(index) for index in range(len(ATTEMPTS))])):
            scores = {name: None if score is None else round(score, 3) for name, score in last.stage_scores.items()}
            sys.stdout.write(f"{last.facts['ending']}, reward {last.reward:.3f}, stages {scores}\n")
    writers.close()


if __name__ == "__main__":
    main()
