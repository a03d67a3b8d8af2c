"""Which of several servers is asked."""

from contextlib import ExitStack, suppress

import pytest

from rubricem_env.domain.errors import BoundaryError
from rubricem_env.llm.limits.balancer import Balancer


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def ask(balancer: Balancer, among=range(3), failure: BoundaryError | None = None) -> int:
    with suppress(BoundaryError), balancer.request(among) as server:
        if failure is not None:
            raise failure
    return server


def away() -> BoundaryError:
    failure = BoundaryError("away")
    failure.is_retryable = True
    return failure


def refused() -> BoundaryError:
    failure = BoundaryError("refused")
    failure.is_retryable = False
    return failure


def test_servers_take_turns_and_the_one_with_fewest_open_requests_comes_first():
    balancer = Balancer(3, Clock())
    assert [ask(balancer) for _ in range(4)] == [0, 1, 2, 0]
    with ExitStack() as stack:
        held = [stack.enter_context(balancer.request(range(3))) for _ in range(5)]
    assert held == [1, 2, 0, 1, 2]
    with balancer.request([0]):
        assert [ask(balancer, [0, 1]) for _ in range(2)] == [1, 1]


def test_a_server_that_is_away_rests_for_thirty_seconds_and_one_request_tries_it():
    clock = Clock()
    balancer = Balancer(2, clock)
    assert ask(balancer, failure=away()) == 0
    clock.now = 29.9
    assert [ask(balancer) for _ in range(2)] == [1, 1]
    clock.now = 30.0
    with balancer.request(range(2)) as trying:
        assert trying == 0
        # It has not answered yet, so nobody else tries it.
        assert [ask(balancer) for _ in range(2)] == [1, 1]
    assert sorted(ask(balancer) for _ in range(2)) == [0, 1]


def test_where_all_are_away_the_one_that_failed_longest_ago_is_asked():
    clock = Clock()
    balancer = Balancer(2, clock)
    ask(balancer, failure=away())
    clock.now = 5.0
    ask(balancer, failure=away())
    # 0 failed at 0 s and 1 at 5 s; after it, both at 5 s, and 0 was asked longer ago.
    assert [ask(balancer, failure=away()) for _ in range(2)] == [0, 1]
    clock.now = 6.0
    assert [ask(balancer, failure=away()) for _ in range(2)] == [0, 1]


def test_a_refusal_does_not_mark_a_server_as_away():
    balancer = Balancer(2, Clock())
    ask(balancer, failure=refused())
    assert [ask(balancer) for _ in range(2)] == [1, 0]


def test_the_failure_reaches_the_caller():
    with pytest.raises(BoundaryError, match="away"), Balancer(1, Clock()).request([0]):
        raise away()
