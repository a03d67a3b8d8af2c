"""Background work that ends when the test says so."""

import asyncio
import json

import pytest

from rubricem_agent.learn.deferred import Deferred, Ticket
from rubricem_env.domain.errors import JudgeError, UsageError


class Stage:
    """Work that ends when the test says so."""

    def __init__(self) -> None:
        self.gates: dict[Ticket, asyncio.Future[str]] = {}
        self.deferred = Deferred(self.work, str)

    async def work(self, ticket: Ticket) -> str:
        gate = asyncio.get_running_loop().create_future()
        self.gates[ticket] = gate
        return await gate

    async def launch(self, step: int, key: str) -> Ticket:
        ticket = Ticket(step, key)
        self.deferred.launch(ticket)
        await settle()
        return ticket

    async def end(self, ticket: Ticket, outcome: str | BaseException = "lesson") -> None:
        gate = self.gates[ticket]
        gate.set_exception(outcome) if isinstance(outcome, BaseException) else gate.set_result(outcome)
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_work_of_step_n_is_collected_in_step_n_plus_1_and_only_once():
    stage = Stage()
    ticket = await stage.launch(1, "a")
    await stage.end(ticket)
    assert stage.deferred.collect(step=1) == ([], [])
    assert stage.deferred.collect(step=2) == ([(ticket, "lesson")], [])
    assert stage.deferred.collect(step=3) == ([], [])


async def test_launch_and_collect_never_wait_for_unfinished_work():
    stage = Stage()
    ticket = await stage.launch(1, "a")
    assert stage.deferred.collect(step=2) == ([], [])
    assert stage.deferred.pending == (ticket,)
    await stage.deferred.cancel()


async def test_what_is_collected_does_not_depend_on_who_finished_first():
    stage = Stage()
    tickets = [await stage.launch(1, key) for key in "ba"]
    for ticket in tickets:
        await stage.end(ticket, ticket.key)
    assert [result for _, result in stage.deferred.collect(step=2)[0]] == ["a", "b"]


async def test_a_failure_of_the_world_is_a_value_and_leaves_the_others_alone():
    stage = Stage()
    first, second = await stage.launch(1, "a"), await stage.launch(1, "b")
    await stage.end(first, JudgeError("could not score reflections: timeout"))
    await stage.end(second)
    failed = [(first, "could not score reflections: timeout")]
    assert stage.deferred.collect(step=2) == ([(second, "lesson")], failed)


async def test_a_bug_in_the_work_is_raised_and_not_swallowed():
    stage = Stage()
    ticket = await stage.launch(1, "a")
    await stage.end(ticket, KeyError("bug"))
    with pytest.raises(KeyError, match="bug"):
        stage.deferred.collect(step=2)


async def test_a_wait_ends_with_the_work():
    stage = Stage()
    ticket = await stage.launch(1, "a")
    waiting = asyncio.ensure_future(stage.deferred.wait("a", timeout=30.0))
    await settle()
    assert not waiting.done()
    await stage.end(ticket)
    async with asyncio.timeout(5):
        await waiting


async def test_a_wait_ends_after_its_time_and_the_work_continues():
    stage = Stage()
    ticket = await stage.launch(1, "a")
    async with asyncio.timeout(5):
        await stage.deferred.wait("a", timeout=0.01)
    assert stage.deferred.pending == (ticket,)
    await stage.end(ticket)
    assert stage.deferred.collect(step=2) == ([(ticket, "lesson")], [])


async def test_nobody_waits_for_a_failed_or_unknown_lesson():
    stage = Stage()
    await stage.end(await stage.launch(1, "a"), JudgeError("no"))
    async with asyncio.timeout(5):
        await stage.deferred.wait("a", timeout=30.0)
        await stage.deferred.wait("never", timeout=30.0)


async def test_the_latest_work_on_a_question_is_the_one_waited_for():
    stage = Stage()
    await stage.end(await stage.launch(1, "a"))
    again = await stage.launch(7, "a")
    waiting = asyncio.ensure_future(stage.deferred.wait("a", timeout=30.0))
    await settle()
    assert not waiting.done()
    await stage.end(again)
    async with asyncio.timeout(5):
        await waiting


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_earlier_work_that_is_still_running_holds_up_nobody_who_has_the_latest(is_resumed):
    stage = Stage()
    early = await stage.launch(1, "a")
    await stage.end(await stage.launch(7, "a"))
    stage.deferred.collect(step=8)
    if is_resumed:
        saved = json.dumps(stage.deferred.state_dict())
        await stage.deferred.cancel()
        stage = Stage()
        stage.deferred.load_state_dict(json.loads(saved))
        stage.deferred.relaunch()
        await settle()
    async with asyncio.timeout(5):
        await stage.deferred.wait("a", timeout=30.0)
    await stage.end(early)
    assert stage.deferred.collect(step=9) == ([(early, "lesson")], [])


async def test_a_killed_run_keeps_what_was_ready_and_launches_the_rest_again():
    before = Stage()
    ready, failed, running = [await before.launch(3, key) for key in ("ready", "failed", "running")]
    await before.end(ready)
    await before.end(failed, JudgeError("no"))
    saved = json.dumps(before.deferred.state_dict())
    await before.deferred.cancel()

    after = Stage()
    after.deferred.load_state_dict(json.loads(saved))
    assert after.deferred.pending == (running,)
    after.deferred.relaunch()
    await settle()
    await after.end(running, "late lesson")
    assert after.deferred.collect(step=4) == ([(ready, "lesson"), (running, "late lesson")], [(failed, "no")])


async def test_cancelling_stops_the_work_and_keeps_its_tickets():
    stage = Stage()
    ticket = await stage.launch(1, "a")
    await stage.deferred.cancel()
    assert stage.gates[ticket].cancelled()
    assert stage.deferred.pending == (ticket,)
    stage.deferred.relaunch()
    await settle()
    await stage.end(ticket)
    assert stage.deferred.collect(step=2) == ([(ticket, "lesson")], [])


async def test_work_that_somebody_else_cancelled_stays_pending():
    stage = Stage()
    ticket = await stage.launch(1, "a")
    stage.gates[ticket].cancel()
    await settle()
    assert stage.deferred.collect(step=2) == ([], [])
    assert stage.deferred.pending == (ticket,)


async def test_the_same_ticket_twice_is_refused():
    stage = Stage()
    ticket = await stage.launch(1, "a")
    with pytest.raises(UsageError, match="the reflection of step 1 on 'a' is running or uncollected already"):
        stage.deferred.launch(ticket)
    await stage.deferred.cancel()


async def test_a_state_is_not_loaded_over_running_work():
    stage = Stage()
    await stage.launch(1, "a")
    with pytest.raises(UsageError, match="work is still running"):
        stage.deferred.load_state_dict(stage.deferred.state_dict())
    await stage.deferred.cancel()


async def test_a_synchronous_run_can_wait_for_everything():
    stage = Stage()
    ticket = await stage.launch(1, "a")
    draining = asyncio.ensure_future(stage.deferred.drain())
    await settle()
    assert not draining.done()
    await stage.end(ticket)
    await draining
    await stage.deferred.drain()
    await stage.deferred.cancel()


async def test_it_runs_on_the_real_clock_too():
    async def work(ticket: Ticket) -> str:
        await asyncio.sleep(0.01)
        return ticket.key

    deferred = Deferred(work, str)
    deferred.launch(Ticket(1, "a"))
    await deferred.wait("a", timeout=10.0)
    assert deferred.collect(step=2) == ([(Ticket(1, "a"), "a")], [])


@pytest.mark.parametrize(
    "change",
    [
        *({"pending": [row]} for row in ([], [1], "1a", {"step": 1}, [0, "a"], [1, 2], [1.0, "a"], [True, "a"], 7)),
        *({"pending": [[1, "a"], [1, "a"]]}, {"done": [[float("inf"), "a", ""]]}, {"failed": [[1, "a", 3]]}),
        *({"latest": value} for value in ([["a", 1]], {"a": -1}, {"a": "1"}, {"a": float("inf")})),
    ],
)
async def test_a_state_that_no_run_has_saved_is_refused_and_changes_nothing(change):
    deferred = Stage().deferred
    before = deferred.state_dict()
    with pytest.raises(UsageError, match="the state of the reflections"):
        deferred.load_state_dict({**before, **change})
    assert deferred.state_dict() == before
