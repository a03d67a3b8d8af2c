"""Time limits, and the death of a process in one sentence."""

import asyncio
import time
from itertools import chain, repeat

import pytest

from rubricem_env.domain.errors import BoundaryError
from trainers.verl_backend.lost_processes import lost_process
from trainers.verl_backend.patience import Patience
from trainers.verl_backend.time_limits import call_with_timeout

TOLD = (
    "The actor died unexpectedly before finishing this task.\n"
    "\tclass_name: create_colocated_worker_cls.<locals>.WorkerDict\n"
    "\tactor_id: 6f3f6ddb01000000\n"
    "\tpid: 4242\n"
    "\tname: q7xWorkerDict_0:0\n"
    "\tnamespace: 0f0f\n"
    "\tip: 10.0.0.7\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR."
)


@pytest.mark.parametrize(
    ("told", "named"),
    [
        (TOLD, "WorkerDict, process 4242 on 10.0.0.7."),
        # What Ray cannot name is told as Ray tells it, in one line.
        ("The actor 6f3f is unavailable:\n  keepalive.", "The actor 6f3f is unavailable: keepalive."),
    ],
)
def test_a_lost_process_is_named_in_one_line(told, named):
    sentence = str(lost_process(told))
    assert sentence.startswith(f"a process of the run is gone: {named}")
    assert "resumes from the last checkpoint" in sentence
    assert "\n" not in sentence


def test_a_process_that_never_came_up_is_told_by_what_it_raised():
    told = (
        "The actor died because of an error raised in its creation task, ray::Worker.__init__() (pid=7, ip=10.0.0.7)\n"
        '  File "worker.py", line 3, in __init__\n    find(name)\n           ^^^^\n'
        "AssertionError: Rollout foo with mode async not found\n"
    )
    sentence = str(lost_process(told))
    assert sentence.startswith("a process of the run could not start: AssertionError: Rollout foo with mode async not")
    assert "File" not in sentence


def test_a_call_that_hangs_ends_with_a_sentence_that_names_the_setting():
    with pytest.raises(BoundaryError, match=r"could not bring the weights in 0.05 seconds.*raise a\.b"):
        call_with_timeout(0.05, "bring the weights", lambda: time.sleep(1), setting="a.b")


def test_what_a_call_returns_or_raises_comes_through():
    assert call_with_timeout(5, "add", lambda: 1 + 1, setting="a.b") == 2
    with pytest.raises(KeyError):
        call_with_timeout(5, "look", lambda: {}["absent"], setting="a.b")


def test_whoever_watches_a_call_can_end_the_wait():
    def watch():
        raise BoundaryError("a process of the run is gone")

    with pytest.raises(BoundaryError, match="is gone"):
        call_with_timeout(5, "sample", lambda: time.sleep(1), setting="a.b", watch=watch, every=0.01)


class FakeClock:
    """Advances when somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds
        await asyncio.sleep(0)


def patience(seconds: float, clock: FakeClock) -> Patience:
    return Patience(seconds, 10.0, clock=clock, sleep=clock.sleep)


async def test_one_caller_at_a_time_probes_a_service_that_is_away_and_all_go_on_when_it_is_back():
    clock, calls = FakeClock(), []
    waiting = patience(100.0, clock)

    async def work(name):
        calls.append((clock.now, name))
        await asyncio.sleep(0)
        return clock.now >= 30

    got = await asyncio.gather(
        *(waiting.run(lambda name=name: work(name), is_lost=lambda is_back: not is_back) for name in "abc")
    )
    assert got == [True, True, True]
    # all three at 0; then one at 10, 20 and 30; then the two others
    assert [time for time, _ in calls] == [0, 0, 0, 10, 20, 30, 30, 30]
    assert (waiting.is_paused, waiting.seconds) == (False, 30.0)


async def test_a_service_that_stays_away_is_given_up_after_the_patience_by_all():
    clock, calls = FakeClock(), []
    waiting = patience(25.0, clock)

    async def work():
        calls.append(clock.now)
        await asyncio.sleep(0)
        return "lost"

    got = await asyncio.gather(*(waiting.run(work, is_lost=lambda result: result == "lost") for _ in range(3)))
    assert got == ["lost"] * 3
    assert calls == [0, 0, 0, 10, 20, 30]
    assert (waiting.is_paused, waiting.seconds) == (False, 25.0)


async def test_without_patience_nothing_is_repeated():
    clock = FakeClock()
    assert await patience(0.0, clock).run(lambda: asyncio.sleep(0, "lost"), is_lost=lambda result: True) == "lost"
    assert clock.now == 0


def test_a_pause_does_not_count_towards_a_time_limit():
    pauses = chain([0.0], repeat(60.0))
    done = call_with_timeout(
        0.1, "sample", lambda: time.sleep(0.4) or 7, setting="s", paused=lambda: next(pauses), every=0.1
    )
    assert done == 7
