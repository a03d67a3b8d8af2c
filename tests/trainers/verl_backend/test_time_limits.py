"""Time limits around calls."""

import threading
import time

import pytest

from rubricem_env.domain.errors import BoundaryError
from trainers.verl_backend.time_limits import call_with_timeout


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


def test_a_pause_does_not_count_towards_a_time_limit():
    release, looks = threading.Event(), []

    def paused():
        looks.append(len(looks))
        if len(looks) == 6:
            release.set()
        return 60.0 if len(looks) > 1 else 0.0

    done = call_with_timeout(0.1, "sample", lambda: release.wait(60) and 7, setting="s", paused=paused, every=0.1)
    assert done == 7
