"""What is loaded is not looked through for garbage meanwhile, and afterwards the collector is as it was."""

import gc

import pytest

from rubricem_env.heap import filling_heap, settle_heap


@pytest.fixture(autouse=True)
def collector():
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()
    gc.unfreeze()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_before_also_after_a_failure(enabled):
    (gc.enable if enabled else gc.disable)()

    seen = []
    with pytest.raises(IndexError), filling_heap():
        seen[gc.isenabled()]

    assert gc.isenabled() == enabled


def test_one_within_another_ends_with_the_outer_one():
    gc.enable()

    with filling_heap():
        with filling_heap():
            pass
        assert not gc.isenabled()

    assert gc.isenabled()


def test_what_is_settled_is_not_looked_through():
    kept = [[number] for number in range(100)]

    settle_heap()

    assert gc.get_freeze_count() > len(kept)
    assert not {id(one) for one in kept} & {id(one) for one in gc.get_objects()}
