"""What the benchmarks of several libraries share."""

import asyncio

import pytest

from rubricem_env.concurrency import LoopThread


@pytest.fixture
def loop():
    thread = LoopThread()
    thread.run(asyncio.sleep(0))
    yield thread
    thread.close()
