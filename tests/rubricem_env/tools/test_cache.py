"""The cache: successes only, one call for equal questions, safe under many processes."""

import asyncio
import sqlite3
import subprocess
import sys
import time

import pytest

from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory import ToolCall, ToolResult, ToolStatus
from rubricem_env.testing.episodes import FOUND, ScriptedTool
from rubricem_env.tools.cache import CachedTool, cache_key
from rubricem_env.tools.cache_stores import InMemoryCache, SqliteStore

CALL = ToolCall(name="google_search", query="Tall Fox")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=["memory", "file"])
async def store(request, tmp_path):
    clock, limits = Clock(), {"ttl": 60, "max_entries": 300}
    is_file = request.param == "file"
    opened = SqliteStore(tmp_path / "c.db", clock, **limits) if is_file else InMemoryCache(clock, **limits)
    opened.clock = clock
    yield opened
    await opened.aclose()


async def test_a_success_is_remembered_byte_for_byte_until_its_time_is_over(store):
    tool = ScriptedTool()
    cached = CachedTool(tool, store, scope="s")
    assert [await cached.call(CALL), await cached.call(CALL)] == [FOUND, FOUND]
    assert len(tool.calls) == 1
    store.clock.now += 61
    await cached.call(CALL)
    assert len(tool.calls) == 2


@pytest.mark.parametrize("status", [status for status in ToolStatus if status.is_error])
async def test_an_error_is_never_remembered(store, status):
    tool = ScriptedTool(lambda _: ToolResult(status=status, message="no"))
    cached = CachedTool(tool, store, scope="s")
    await cached.call(CALL)
    await cached.call(CALL)
    assert len(tool.calls) == 2


async def test_old_entries_make_room(store):
    for number in range(600):
        store.clock.now += 0.01
        await store.put(f"key {number}", "text")
    kept = [await store.get(f"key {number}") for number in range(600)]
    # SQLite trims every 256 writes: at most that many beyond the bound of 300.
    assert kept[0] is None
    assert kept[-1] == "text"
    assert sum(entry is not None for entry in kept) <= 300 + 256


def after(event, call):
    """The call, once the event is set."""

    async def wait_and_call(*arguments):
        await event.wait()
        return await call(*arguments)

    return wait_and_call


async def test_equal_calls_at_once_cost_one_call_even_if_the_first_caller_is_cancelled(store, monkeypatch):
    looked, all_wait = [], asyncio.Event()
    look_up = store.get

    async def count(key):
        text = await look_up(key)
        # What follows in the caller's step is that it waits.
        looked.append(key)
        if len(looked) == 8:
            all_wait.set()
        return text

    monkeypatch.setattr(store, "get", count)
    tool = ScriptedTool(delay=0.05)
    monkeypatch.setattr(tool, "call", after(all_wait, tool.call))
    cached = CachedTool(tool, store, scope="s")
    first, *others = (asyncio.create_task(cached.call(CALL)) for _ in range(8))
    await all_wait.wait()
    first.cancel()
    assert await asyncio.gather(*others) == [FOUND] * 7
    assert len(tool.calls) == 1


async def test_work_that_nobody_waits_for_is_cancelled(store):
    begun, cancelled = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedTool):
        async def call(self, call):
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return FOUND

    asking = asyncio.create_task(CachedTool(Slow(), store, scope="s").call(CALL))
    await asyncio.wait_for(begun.wait(), 30)
    asking.cancel()
    await asyncio.wait_for(cancelled.wait(), 30)


async def happens(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


async def settle():
    """What is ready to run has run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_abandoned_call_that_is_slow_to_end_does_not_replace_its_successor():
    begun, gate, late, ended = [], asyncio.Event(), asyncio.Event(), asyncio.Event()

    class SlowToEnd(ScriptedTool):
        async def call(self, call):
            begun.append(call)
            try:
                await gate.wait()
            except asyncio.CancelledError:
                await late.wait()
                ended.set()
                raise
            return FOUND

    cached = CachedTool(SlowToEnd(), InMemoryCache(Clock()), scope="s")
    abandoned = asyncio.create_task(cached.call(CALL))
    await happens(lambda: len(begun) == 1)
    abandoned.cancel()
    await asyncio.wait({abandoned}, timeout=30)
    second = asyncio.create_task(cached.call(CALL))
    await happens(lambda: len(begun) == 2)
    late.set()
    await ended.wait()
    await settle()
    third = asyncio.create_task(cached.call(CALL))
    await settle()
    gate.set()
    assert await asyncio.gather(second, third) == [FOUND, FOUND]
    assert len(begun) == 2


async def test_every_waiting_caller_is_cancelled_with_the_work():
    class Cancelled(ScriptedTool):
        async def call(self, call):
            await asyncio.sleep(0)
            raise asyncio.CancelledError

    cached = CachedTool(Cancelled(), InMemoryCache(Clock()), scope="s")
    ends = await asyncio.gather(*(cached.call(CALL) for _ in range(3)), return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError] * 3


async def test_an_equal_call_that_ended_after_the_look_is_found():
    """One caller's first look at a slow store ends after another caller's call of the tool."""

    class SlowFirst(InMemoryCache):
        gate: asyncio.Event | None = asyncio.Event()

        async def get(self, key):
            found = await super().get(key)
            if gate := self.gate:
                self.gate = None
                await gate.wait()
            return found

    gate, tool = SlowFirst.gate, ScriptedTool()
    cached = CachedTool(tool, SlowFirst(Clock()), scope="s")
    first = asyncio.create_task(cached.call(CALL))
    await asyncio.sleep(0)
    assert await cached.call(CALL) == FOUND
    gate.set()
    assert await first == FOUND
    assert len(tool.calls) == 1


async def test_every_waiting_caller_gets_the_failure_and_the_next_call_tries_again():
    outcomes = iter([ValueError("no"), FOUND])

    class FailsOnce(ScriptedTool):
        async def call(self, call):
            await asyncio.sleep(0)
            if isinstance(outcome := next(outcomes), ValueError):
                raise outcome
            return outcome

    cached = CachedTool(FailsOnce(), InMemoryCache(Clock()), scope="s")
    failures = await asyncio.gather(*(cached.call(CALL) for _ in range(3)), return_exceptions=True)
    assert [str(failure) for failure in failures] == ["no"] * 3
    assert await cached.call(CALL) == FOUND


async def test_a_damaged_entry_is_replaced(store):
    await store.put(cache_key(CALL, "s"), "not a result")
    assert await CachedTool(ScriptedTool(), store, scope="s").call(CALL) == FOUND


async def test_a_store_that_fails_costs_the_entry_and_not_the_call(caplog):
    class Full(InMemoryCache):
        async def put(self, key, text):
            raise sqlite3.OperationalError("database or disk is full")

    assert await CachedTool(ScriptedTool(), Full(Clock()), scope="s").call(CALL) == FOUND
    assert "disk is full" in caplog.text


def test_spacing_does_not_make_another_question_and_case_does():
    spaced = CALL.model_copy(update={"query": "  Tall \n Fox "})
    lower = CALL.model_copy(update={"query": "tall fox"})
    assert cache_key(spaced, "s") == cache_key(CALL, "s")
    # Addresses are questions too, and theirs is a case that counts.
    assert cache_key(lower, "s") != cache_key(CALL, "s")
    assert cache_key(CALL, "other engine") != cache_key(CALL, "s")


async def test_a_file_that_is_no_cache_is_named(tmp_path):
    path = tmp_path / "cache.db"
    path.write_text("this is a letter to a friend, and long enough to be no database at all" * 20)
    with pytest.raises(FileFormatError, match=r"cache\.db cannot be used"):
        await SqliteStore(path, Clock()).get("")


WRITER = """
import asyncio, sys, time
from pathlib import Path
from rubricem_env.tools.cache_stores import SqliteStore

async def main():
    store = SqliteStore(Path(sys.argv[1]), time.time)
    for number in range(60):
        await store.put(f"{sys.argv[2]} {number}", "text")
    await store.aclose()

asyncio.run(main())
"""


async def test_a_file_that_another_process_is_just_making_is_waited_for(tmp_path):
    path = tmp_path / "new.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    store = SqliteStore(path, time.time)
    writing = asyncio.create_task(store.put("key", "text"))
    done, _ = await asyncio.wait([writing], timeout=0.3)
    assert not done
    other.execute("COMMIT")
    other.close()
    await writing
    assert await store.get("key") == "text"
    await store.aclose()


async def test_four_processes_write_one_file_and_lose_nothing(tmp_path):
    path = tmp_path / "shared.db"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(number)]) for number in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    with sqlite3.connect(path) as connection:
        count = connection.execute("SELECT count(*) FROM results").fetchone()
    connection.close()
    assert count == (240,)


async def test_a_store_is_closed_under_its_lock_since_a_write_may_be_going_on(tmp_path):
    store = SqliteStore(tmp_path / "c.db", time.time)
    await store.put("key", "text")
    connection, held = store._connection, []

    class Watched:
        def close(self):
            held.append(store._lock.locked())
            connection.close()

    store._connection = Watched()
    await store.aclose()
    assert held == [True]
