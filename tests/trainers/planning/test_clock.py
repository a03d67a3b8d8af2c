"""Simulated time and the engine in it, against what can be worked out by hand."""

import pytest

from trainers.experiments.step_simulation import Clock, Engine, Process, Seats, Signal, all_of


def test_processes_run_in_the_order_of_their_times() -> None:
    clock, told = Clock(), []

    def waits(name: str, seconds: float) -> Process:
        yield seconds
        told.append((name, clock.now))
        yield seconds
        told.append((name, clock.now))

    clock.start(waits("slow", 3))
    clock.start(waits("fast", 1))
    clock.run()

    assert told == [("fast", 1), ("fast", 2), ("slow", 3), ("slow", 6)]


def test_a_process_that_waits_for_several_goes_on_with_the_last() -> None:
    clock = Clock()

    def waits(seconds: float) -> Process:
        yield seconds

    done = clock.start(all_of([clock.start(waits(seconds)) for seconds in (5, 2, 9)]))
    clock.run(until=done)

    assert clock.now == 9


def test_a_thousand_signals_that_have_fired_are_passed_without_depth() -> None:
    clock = Clock()
    fired = [Signal() for _ in range(5_000)]
    for signal in fired:
        signal.fire()

    assert clock.start(all_of(fired)).has_fired


def test_watchers_are_told_of_every_stretch_of_time_once() -> None:
    clock, told = Clock(), []
    clock.watchers.append(told.append)

    def waits() -> Process:
        yield 2.0
        yield 3.0

    clock.start(waits())
    clock.run()

    assert told == [2.0, 3.0]


def test_seats_are_taken_in_the_order_of_asking() -> None:
    clock, seats, order = Clock(), Seats(1), []

    def sits(name: str, seconds: float) -> Process:
        yield seats.take()
        order.append((name, clock.now))
        yield seconds
        seats.leave()

    for name in "abc":
        clock.start(sits(name, 4))
    clock.run()

    assert order == [("a", 0), ("b", 4), ("c", 8)]
    assert seats.taken == 0


def served(engine: Engine, clock: Clock, *requests: tuple[float, float]) -> list[float]:
    """When each request is done; a request is its start and its tokens."""
    ends = [0.0] * len(requests)

    def asks(place: int, start: float, tokens: float) -> Process:
        yield start
        yield engine.serve(tokens)
        ends[place] = clock.now

    for place, (start, tokens) in enumerate(requests):
        clock.start(asks(place, start, tokens))
    clock.run()
    return ends


def test_two_requests_share_the_engines_speed() -> None:
    clock = Clock()
    # 10 tokens/s in all: both go at 5 until the one of 10 tokens is done at 2 s; the other has 20 left and 10/s.
    ends = served(Engine(clock, speed=10, fastest=10, seats=9), clock, (0, 10), (0, 30))

    assert ends == pytest.approx([2, 4])


def test_a_lone_request_is_no_faster_than_one_sequence_can_be() -> None:
    clock = Clock()
    assert served(Engine(clock, speed=100, fastest=4, seats=9), clock, (0, 20)) == pytest.approx([5])


def test_a_late_request_slows_the_early_one_down() -> None:
    clock = Clock()
    # Alone until 1 s: 10 of 20 tokens. Then 5/s each: the early one is done at 3 s, the late one has 10 left, alone.
    ends = served(Engine(clock, speed=10, fastest=10, seats=9), clock, (0, 20), (1, 20))

    assert ends == pytest.approx([3, 4])


def test_a_request_without_a_seat_waits_for_one() -> None:
    clock = Clock()
    assert served(Engine(clock, speed=10, fastest=10, seats=1), clock, (0, 10), (0, 10)) == pytest.approx([1, 2])


def test_a_paused_engine_keeps_what_was_sampled_and_adds_nothing() -> None:
    clock = Clock()
    engine = Engine(clock, speed=10, fastest=10, seats=9)

    def pauses() -> Process:
        yield 1.0
        engine.pause()
        yield 5.0
        engine.resume()

    clock.start(pauses())

    # 10 of 30 tokens before the pause of 5 s, 20 after it.
    assert served(engine, clock, (0, 30)) == pytest.approx([8])
    assert not engine.is_busy
