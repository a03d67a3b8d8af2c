"""What a resumed run does with the rows that a checkpoint of veRL's queue holds."""

from types import SimpleNamespace

from trainers.verl_backend import verl_parts

TASKS = "train"


class FakeQueue:
    """veRL's queue, as much of it as is asked here: tags by key."""

    def __init__(self, groups, rollouts):
        self.tags = {key: {"is_prompt": True, "status": status, "global_steps": 3} for key, status in groups.items()}
        self.tags |= {key: {"status": "success"} for key in rollouts}

    def kv_list(self, partition_id):
        return {partition_id: self.tags}

    def kv_clear(self, keys, partition_id):
        for key in keys:
            del self.tags[key]

    def kv_batch_put(self, keys, partition_id, tags):
        self.tags |= dict(zip(keys, tags, strict=True))


def saved(monkeypatch, groups, rollouts):
    queue = FakeQueue(groups, rollouts)
    monkeypatch.setattr(verl_parts, "tq", queue)
    return queue


def test_the_rows_of_the_step_that_was_saved_are_removed_and_those_ahead_stay(monkeypatch):
    queue = saved(monkeypatch, {"ahead": "finished"}, {"trained_0_0": True, "trained_1_0": True, "ahead_0_0": True})
    verl_parts.remove_trained(TASKS)
    assert set(queue.tags) == {"ahead", "ahead_0_0"}


def test_a_group_that_an_outage_spoilt_is_set_back_to_pending_and_no_other(monkeypatch):
    queue = saved(monkeypatch, {"g": "finished", "h": "finished"}, {"g_0_0": True})
    verl_parts.sample_again(("g", "gone"), TASKS)
    assert queue.tags["g"] == {"is_prompt": True, "status": "pending", "global_steps": 3}
    assert queue.tags["h"]["status"] == "finished"
    assert "gone" not in queue.tags


def test_an_empty_queue_is_left_as_it_is(monkeypatch):
    queue = saved(monkeypatch, {}, {})
    verl_parts.sample_again(("g",), TASKS)
    verl_parts.remove_trained(TASKS)
    assert queue.tags == {}


def test_a_checkpoint_waits_until_the_judged_groups_are_written_down_and_for_no_other(monkeypatch):
    queue = saved(monkeypatch, {"judged": "running", "other": "running"}, {})
    looks = []

    def workers_write(seconds):
        looks.append(seconds)
        queue.tags["judged"]["status"] = "finished"

    monkeypatch.setattr(verl_parts, "time", SimpleNamespace(sleep=workers_write))
    verl_parts.wait_for_groups(["judged", "trained and gone"], TASKS)
    assert len(looks) == 1
