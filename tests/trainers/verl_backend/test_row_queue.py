"""What is read of the queue of rows, and what a resumed run does with the rows that a checkpoint of it holds."""

import numpy as np
import pytest
import torch

from tests.trainers.verl_backend.fakes import FakeQueue
from trainers.verl_backend.row_queue import (
    held_groups,
    read_credited,
    read_tokens,
    remove_trained,
    rows_of_update,
    sample_again,
    wait_for_groups,
)
from trainers.verl_backend.rows import OURS

TASKS = "train"


def saved(groups, rollouts=()):
    queue = FakeQueue()
    queue.put(TASKS, {key: {"is_prompt": True, "status": status, "global_steps": 3} for key, status in groups.items()})
    queue.put(TASKS, {key: {"status": "success"} for key in rollouts})
    return queue


def test_the_rows_of_the_step_that_was_saved_are_removed_and_those_ahead_stay():
    queue = saved({"ahead": "finished"}, ["trained_0_0", "trained_1_0", "ahead_0_0"])
    assert held_groups(queue, TASKS) == {"ahead"}
    remove_trained(queue, TASKS)
    assert set(queue.tags(TASKS)) == {"ahead", "ahead_0_0"}


def test_a_group_that_an_outage_spoilt_is_set_back_to_pending_and_no_other():
    queue = saved({"g": "finished", "h": "finished"}, ["g_0_0"])
    sample_again(queue, TASKS, ("g", "gone"))
    tags = queue.tags(TASKS)
    assert tags["g"] == {"is_prompt": True, "status": "pending", "global_steps": 3}
    assert tags["h"]["status"] == "finished"
    assert "gone" not in tags


def test_an_empty_queue_is_left_as_it_is():
    queue = FakeQueue()
    sample_again(queue, TASKS, ("g",))
    remove_trained(queue, TASKS)
    assert queue.tags(TASKS) == {}


def test_a_checkpoint_waits_until_the_judged_groups_are_written_down_and_for_no_other():
    queue = saved({"judged": "running", "other": "running"})
    looks = []

    def workers_write(seconds):
        looks.append(seconds)
        queue.put(TASKS, {"judged": {"status": "finished"}})

    wait_for_groups(queue, TASKS, ["judged", "trained and gone"], sleep=workers_write)
    assert len(looks) == 1


@pytest.fixture
def rollouts():
    queue = FakeQueue()
    tags = {"g_0_0": {"min_global_steps": 4}, "pad": {"min_global_steps": 4, "is_padding": True}}
    stages = np.array([0, 3])
    rows = [
        {"extra_fields": {OURS: {"group": "g", "stages": stages}}, "advantages": torch.tensor([0.5, number])}
        for number in (1.0, 2.0)
    ]
    queue.put(TASKS, tags, rows)
    return queue


def test_rollouts_are_read_with_group_stages_and_weights_and_padding_is_left_out(rollouts):
    (row,) = read_credited(rollouts, TASKS, rollouts.tags(TASKS))
    assert (row.key, row.group, row.stages.tolist(), row.version) == ("g_0_0", "g", [0, 3], 4)


def test_tokens_are_read_row_after_row_and_fields_that_are_not_there_are_left_out(rollouts):
    tokens = read_tokens(rollouts, TASKS, ["pad", "g_0_0"], ["advantages", "entropy"])
    assert {name: values.tolist() for name, values in tokens.items()} == {"advantages": [0.5, 2.0, 0.5, 1.0]}


def test_the_windows_of_a_rollout_are_cleared_and_kept_with_its_group():
    queue = saved({"ahead": "finished"}, ["trained_0_0", "trained_0_1", "ahead_0_0", "ahead_0_1", "ahead_0_2"])
    remove_trained(queue, TASKS)
    assert set(queue.tags(TASKS)) == {"ahead", "ahead_0_0", "ahead_0_1", "ahead_0_2"}


def keys_of(*windows: int) -> list[str]:
    """The keys of rollouts with so many windows."""
    return [f"g_{rollout}_{window}" for rollout, count in enumerate(windows) for window in range(count)]


@pytest.mark.parametrize(
    ("windows", "rollouts", "multiple", "rows"),
    [
        ((1, 1, 1, 1), 4, 8, None),  # nothing is folded: veRL's own number
        ((3, 1, 2, 4), 4, 1, 10),  # one update, as of four rollouts
        ((3, 1, 2, 4), 4, 8, 16),  # filled up for the ranks and micro-batches
        ((3, 1, 2, 3), 2, 1, 5),  # two updates, of 5 and 4 rows
        ((2, 1, 1), 2, 1, 2),  # three rollouts are two updates of two
    ],
)
def test_folded_rollouts_take_as_many_updates_as_others(windows, rollouts, multiple, rows):
    assert rows_of_update(keys_of(*windows), rollouts=rollouts, multiple=multiple) == rows
