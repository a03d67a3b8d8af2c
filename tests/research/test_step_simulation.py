"""The event simulation: its clock and engine, and whole steps, against numbers worked out by hand."""

import asyncio

import pytest

from research.simulate import Engine, Scenario, SimulatedStep, average, run_virtually, simulate
from trainers.verl_backend.planning.estimate import PhaseTimes


def test_waiting_takes_no_time_and_the_clock_goes_to_the_next_timer() -> None:
    async def waits() -> float:
        await asyncio.gather(*(asyncio.sleep(seconds) for seconds in (5_000, 2_000, 9_000)))
        return asyncio.get_running_loop().time()

    assert run_virtually(waits()) == pytest.approx(9_000)


def test_tasks_that_wait_for_each_other_alone_are_a_bug_and_not_a_hang() -> None:
    async def waits() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="waits for another one"):
        run_virtually(waits())


def served(
    *requests: tuple[float, float], seats: int = 9, pause: tuple[float, float] | None = None
) -> tuple[list[float], float]:
    """When each request (start, tokens) is done on an engine of 10 tokens/s, and the engine's busy seconds."""

    async def run() -> tuple[list[float], float]:
        engine = Engine(speed=10, fastest=10, seats=seats)

        async def asks(start: float, tokens: float) -> float:
            await asyncio.sleep(start)
            await engine.serve(tokens)
            return asyncio.get_running_loop().time()

        async def pauses(begins: float, ends: float) -> None:
            await asyncio.sleep(begins)
            engine.pause()
            await asyncio.sleep(ends - begins)
            engine.pause(ends=True)

        pausing = asyncio.create_task(pauses(*pause)) if pause else None
        ends = await asyncio.gather(*(asks(*request) for request in requests))
        if pausing:
            await pausing
        return ends, engine.busy_seconds()

    return run_virtually(run())


def test_two_requests_share_the_engines_speed() -> None:
    # 10 tokens/s in all: both go at 5 until the one of 10 tokens is done at 2 s; the other has 20 left and 10/s.
    assert served((0, 10), (0, 30))[0] == pytest.approx([2, 4])


def test_a_late_request_slows_the_early_one_down() -> None:
    # Alone until 1 s: 10 of 20 tokens. Then 5/s each: the early one is done at 3 s, the late one has 10 left, alone.
    assert served((0, 20), (1, 20))[0] == pytest.approx([3, 4])


def test_seats_are_taken_in_the_order_of_asking() -> None:
    assert served((0, 40), (0, 40), (0, 40), seats=1)[0] == pytest.approx([4, 8, 12])


def test_a_paused_engine_keeps_what_was_sampled_and_adds_nothing() -> None:
    ends, busy = served((0, 30), pause=(1, 6))

    # 10 of 30 tokens before the pause of 5 s, 20 after it.
    assert (ends, busy) == (pytest.approx([8]), pytest.approx(3))


TIMES = PhaseTimes(
    engine_speed=100,
    sequence_speed=10,
    written_tokens=100,
    longest_tokens=100,
    searches=1,
    tool_seconds=3,
    propose_seconds=4,
    score_seconds=2,
    reflect_seconds=5,
    reflection_tokens=20,
    candidates=2,
    task_seconds=7,
    lesson_seconds=6,
    swap_seconds=1,
    spread=0,
)
"""Two questions of two attempts fill 4 x 10 of the engine's 100 tokens a second, so nothing slows anything down: an
attempt takes 5 + 3 + 5 = 13 s, its judgement 4 + 2 = 6, a reflection 2 + 5 = 7."""

IN_TURN = Scenario(questions=2, group_size=2, steps=6, layout="sync", window=3)


def seconds(record: SimulatedStep) -> dict[str, float]:
    return {doing: pytest.approx(value) for doing, value in record.seconds.items() if value > 1e-9}


def test_in_turn_a_step_is_the_sum_of_its_parts() -> None:
    first, second, *_ = simulate(TIMES, IN_TURN)

    # 13 s of rollouts, 6 of judge, 7 of update, 1 of swap; there are no reflections yet.
    assert first.total == pytest.approx(27)
    assert seconds(first) == {"waits for rollouts": 13, "waits for the judge": 6, "trains on rollouts": 7, "swaps": 1}
    # The first step's reflections wait for the engine, which sleeps from 19 s to 27, and are there at 34: in time for
    # the second step's Phase A at 27 + 19 = 46.
    assert seconds(second) == {**seconds(first), "trains on reflections": 6}


def test_without_deferral_a_new_step_waits_for_its_reflections() -> None:
    records = simulate(TIMES, IN_TURN._replace(defers=False))

    # 2 s of sampling and 5 of judging, waited for and trained on in the same step; steps 4 to 6 are repeats.
    assert [record.seconds["waits for reflections"] for record in records] == pytest.approx([7, 7, 7, 0, 0, 0])
    assert [record.seconds["trains on reflections"] for record in records] == pytest.approx([6, 6, 6, 0, 0, 0])


def test_deferral_saves_the_waiting_for_reflections_and_not_the_training_on_them() -> None:
    waiting = average(simulate(TIMES, IN_TURN._replace(defers=False)))
    deferring = average(simulate(TIMES, IN_TURN))
    without = average(simulate(TIMES, IN_TURN._replace(has_lessons=False)))

    assert waiting.total - deferring.total == pytest.approx(7 / 2)  # every second step is new
    assert deferring.total - without.total == pytest.approx(6 / 2)


def test_a_step_ahead_hides_rollouts_and_judge_behind_what_comes_between() -> None:
    records = simulate(TIMES, IN_TURN._replace(layout="async", has_lessons=False))

    # The second step's questions begin with the first step, and its 19 s are over when the first one's update begins.
    assert seconds(records[0]) == {
        "waits for rollouts": 13,
        "waits for the judge": 6,
        "trains on rollouts": 7,
        "swaps": 1,
    }
    assert seconds(records[1]) == {"trains on rollouts": 7, "swaps": 1}
    # The third step's begin with the second, whose 8 s the engine sleeps through.
    assert seconds(records[2]) == seconds(records[0])
    assert records[2].judge_span == pytest.approx(6)


def test_apart_sampling_goes_on_while_training() -> None:
    records = simulate(TIMES, IN_TURN._replace(layout="separate", has_lessons=False))

    # The third step's questions begin with the second step at 27 s: 5 s of sampling and 2 of the tools' 3 during the
    # update, the third during the swap, in which the engine stands still; so 5 s of sampling are left to wait for.
    assert seconds(records[2]) == {
        "waits for rollouts": 5,
        "waits for the judge": 6,
        "trains on rollouts": 7,
        "swaps": 1,
    }


def test_a_judge_with_one_seat_makes_a_queue() -> None:
    first = simulate(TIMES.model_copy(update={"judge_seats": 1}), IN_TURN._replace(has_lessons=False))[0]

    # Two proposals of 4 s and four scores of 2 s, one after the other.
    assert first.seconds["waits for the judge"] == pytest.approx(16)
    assert first.judge_span == pytest.approx(16)


def test_in_lockstep_all_questions_wait_for_the_slowest() -> None:
    spread = TIMES.model_copy(update={"spread": 1.0})
    scenario = IN_TURN._replace(questions=8, group_size=4, has_lessons=False, steps=12)

    lockstep = average(simulate(spread, scenario._replace(in_lockstep=True)))
    flowing = average(simulate(spread, scenario))

    assert lockstep.seconds["waits for the judge"] == pytest.approx(
        lockstep.judge_span
    )  # nothing is judged before all is sampled
    assert flowing.seconds["waits for the judge"] < lockstep.seconds["waits for the judge"]
    assert flowing.seconds["waits for rollouts"] == pytest.approx(lockstep.seconds["waits for rollouts"])


def test_no_attempt_is_longer_or_searches_more_than_its_limits() -> None:
    wild = TIMES.model_copy(update={"spread": 2.0, "tool_seconds": 0.0, "most_searches": 2.0, "sequence_speed": 1.0})
    records = simulate(wild, IN_TURN._replace(has_lessons=False, steps=12))

    assert max(record.seconds["waits for rollouts"] for record in records) == pytest.approx(
        100
    )  # 100 tokens at 1 a second


def test_the_groups_that_are_done_spare_a_step_the_slowest_of_its_own() -> None:
    spread = TIMES.model_copy(update={"spread": 1.0})
    own = IN_TURN._replace(questions=8, group_size=4, has_lessons=False, steps=12, layout="async")

    waiting, taking = (average(simulate(spread, own._replace(takes_finished=taken))) for taken in (False, True))

    assert taking.total < waiting.total
    # Without spread all groups of a step are done at once, and there is nothing to choose.
    same = [record.total for record in simulate(TIMES, own)]
    assert [record.total for record in simulate(TIMES, own._replace(takes_finished=True))] == pytest.approx(same)


def test_the_order_of_questions_matters_where_attempts_wait_for_a_seat() -> None:
    spread = TIMES.model_copy(update={"spread": 1.0, "longest_tokens": 10_000.0, "tool_seconds": 0.0})
    own = IN_TURN._replace(questions=8, group_size=2, has_lessons=False, steps=12)
    sorted_ = own._replace(longest_first=True)

    assert average(simulate(spread, own)).total == pytest.approx(average(simulate(spread, sorted_)).total)
    crowded = spread.model_copy(update={"engine_seats": 4})
    assert average(simulate(crowded, sorted_)).total < average(simulate(crowded, own)).total
