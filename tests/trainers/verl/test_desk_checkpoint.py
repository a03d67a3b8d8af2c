"""A checkpoint of the desk is one of veRL's queue too: a group is judged in both or in neither, and in each once."""

import asyncio

from rubricem_agent.learn.deferred import Ticket
from tests.trainers.verl.test_desk import NEW, QUERY, SlowClient, hand_in_group, identity, make_desk

SLOW_JUDGE = {"knobs": {"latency": 0.2}}


async def kept(desk, folder, *, step=1):
    return await desk.keep(folder, step=step, stream={}, identity=identity(desk))


async def soon(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_group_that_is_being_judged_at_a_checkpoint_gets_its_marks_only_when_the_checkpoint_is_whole(
    model_folder, tmp_path
):
    desk = make_desk(model_folder, almanac=SLOW_JUDGE, meta_policy=False)
    group = asyncio.create_task(hand_in_group(desk))
    await soon(lambda: not desk._groups and not group.done() and desk._parts.judge.buffer._locks)
    assert await kept(desk, tmp_path) == ()
    await asyncio.sleep(1.0)
    # Judging goes on meanwhile; what it has found is held back.
    assert not group.done()
    await desk.go_on()
    assert [one.is_valid for one in await group] == [True, True]


async def test_such_a_group_is_not_in_the_checkpoint_so_that_the_resumed_run_judges_it_once(model_folder, tmp_path):
    desk = make_desk(model_folder, almanac=SLOW_JUDGE)
    await desk.open(SlowClient())
    group = asyncio.create_task(hand_in_group(desk))
    await soon(lambda: bool(desk._parts.judge.buffer._locks))
    await kept(desk, tmp_path)
    other = make_desk(model_folder)
    await other.resume(tmp_path, step=1, identity=identity(other))
    await other.open(SlowClient())
    assert (other._deferred.pending, other._parts.judge.state_dict()["buffer"]["questions"]) == ((), {})
    await hand_in_group(other)
    assert other._deferred.pending == (Ticket(NEW.step, QUERY.key),)
    await desk.go_on()
    await group
    for one in (desk, other):
        await one._deferred.cancel()


async def test_a_checkpoint_names_the_groups_that_were_marked_since_the_last_one(model_folder, tmp_path):
    desk = make_desk(model_folder, meta_policy=False)
    await hand_in_group(desk, group="first")
    await hand_in_group(desk, group="second")
    assert await kept(desk, tmp_path, step=1) == ("first", "second")
    await desk.go_on()
    await hand_in_group(desk, group="third")
    assert await kept(desk, tmp_path, step=2) == ("third",)
