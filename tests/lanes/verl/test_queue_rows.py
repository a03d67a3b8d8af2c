"""What a resumed run does with the rows that a checkpoint of veRL's queue holds."""

from types import SimpleNamespace

import pytest

from trainers.verl_backend import queue as queue_rows
from trainers.verl_backend.rows import OURS

TASKS = "train"


class FakeQueue:
    """veRL's queue, as much of it as is asked here: tags by key, and whether each rollout is valid."""

    def __init__(self, groups, rollouts):
        self.tags = {key: {"is_prompt": True, "status": status, "global_steps": 3} for key, status in groups.items()}
        self.tags |= {key: {"status": "success"} for key in rollouts}
        self.valid = rollouts

    def kv_list(self, partition_id):
        return {partition_id: self.tags}

    def kv_clear(self, keys, partition_id):
        for key in keys:
            del self.tags[key]

    def kv_batch_get(self, keys, partition_id, select_fields):
        return {
            "extra_fields": [{OURS: SimpleNamespace(scores=SimpleNamespace(is_valid=self.valid[key]))} for key in keys]
        }

    def kv_batch_put(self, keys, partition_id, tags):
        self.tags |= dict(zip(keys, tags, strict=True))


def saved(monkeypatch, groups, rollouts):
    queue = FakeQueue(groups, rollouts)
    monkeypatch.setattr(queue_rows, "tq", queue)
    return queue


def test_the_rows_of_the_step_that_was_saved_are_removed_and_those_ahead_stay(monkeypatch):
    queue = saved(monkeypatch, {"ahead": "finished"}, {"trained_0_0": True, "trained_1_0": True, "ahead_0_0": True})
    queue_rows.remove_trained(TASKS)
    assert set(queue.tags) == {"ahead", "ahead_0_0"}


@pytest.mark.parametrize(
    ("valid", "status"),
    [((True, True, True, True, True), "finished"), ((True, True, True, True, False), "finished"),
     ((True, True, True, False, False), "pending"), ((False,) * 5, "pending")],
)  # fmt: skip
def test_a_group_that_an_outage_spoilt_is_sampled_again_after_it(monkeypatch, valid, status):
    rollouts = {f"g_{place}_0": is_valid for place, is_valid in enumerate(valid)}
    queue = saved(monkeypatch, {"g": "finished"}, rollouts)
    queue_rows.reset_failed_groups(TASKS, 0.2)
    assert queue.tags["g"] == {"is_prompt": True, "status": status, "global_steps": 3}


def test_an_empty_queue_is_left_as_it_is(monkeypatch):
    queue = saved(monkeypatch, {}, {})
    queue_rows.reset_failed_groups(TASKS, 0.2)
    queue_rows.remove_trained(TASKS)
    assert queue.tags == {}


def test_a_checkpoint_waits_until_the_judged_groups_are_written_down_and_for_no_other(monkeypatch):
    queue = saved(monkeypatch, {"judged": "running", "other": "running"}, {})
    looks = []

    def workers_write(seconds):
        looks.append(seconds)
        queue.tags["judged"]["status"] = "finished"

    monkeypatch.setattr(queue_rows, "time", SimpleNamespace(sleep=workers_write))
    queue_rows.wait_for_groups(["judged", "trained and gone"], TASKS)
    assert len(looks) == 1
