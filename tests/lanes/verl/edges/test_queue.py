"""What a resume does with a checkpoint of veRL's queue, on a queue of veRL's own and a Ray of its own."""

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.utils import tensordict_utils as tu

from tests.lanes.verl.runs import PATIENCE, ROOT
from trainers.verl_backend.row_queue import held_groups, remove_trained, sample_again, wait_for_groups
from trainers.verl_backend.transfer_rows import TransferRows

TASKS = "train"


@pytest.fixture
def queue():
    os.environ.update(PATIENCE)
    folder = Path(tempfile.mkdtemp(prefix="rv", dir="/tmp"))
    ray.init(
        num_cpus=4, _temp_dir=str(folder), include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}}
    )
    tq.init(OmegaConf.create({"backend": {"SimpleStorage": {"num_data_storage_units": 1}}}))
    yield folder
    tq.close()
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def put_group(name: str) -> None:
    """A group of two as veRL's rollout workers leave it, its question not yet among what is to be played."""
    rows = [{"prompts": torch.arange(3 + place), "extra_fields": {}} for place in range(2)]
    fields = tu.list_of_dict_to_tensordict(rows)
    keys = [f"{name}_{place}_0" for place in range(2)]
    tq.kv_batch_put(keys=keys, partition_id=TASKS, fields=fields, tags=[{"status": "success"}] * 2)


def test_a_restored_queue_plays_again_what_an_outage_spoilt_and_forgets_what_was_trained(queue):
    questions = np.array(["spoilt?", "whole?", "begun?"], dtype=object)
    pending = {"is_prompt": True, "status": "pending", "global_steps": 1}
    names = ["spoilt", "whole", "begun"]
    tq.kv_batch_put(
        keys=names, partition_id=TASKS, fields=tu.get_tensordict({"query": questions}), tags=[pending] * len(names)
    )
    put_group("spoilt")
    put_group("whole")
    put_group("trained")
    for name in ("spoilt", "whole"):
        tq.kv_put(key=name, partition_id=TASKS, tag={"status": "finished"})
    rows = TransferRows()
    wait_for_groups(rows, TASKS, ["spoilt", "whole", "trained"])
    tq.save_checkpoint(str(queue / "saved"))
    tq.kv_clear(keys=list(tq.kv_list(TASKS)[TASKS]), partition_id=TASKS)
    tq.load_checkpoint(str(queue / "saved"))

    remove_trained(rows, TASKS)
    sample_again(rows, TASKS, ("spoilt",))

    assert held_groups(rows, TASKS) == {"spoilt", "whole", "begun"}
    held = tq.kv_list(TASKS)[TASKS]
    assert {key: tag["status"] for key, tag in held.items() if tag.get("is_prompt")} == {
        "spoilt": "pending",
        "whole": "finished",
        "begun": "pending",
    }
    assert not [key for key in held if key.startswith("trained")]
    # The question is still there to be played.
    assert list(tq.kv_batch_get(keys=["spoilt"], partition_id=TASKS)["query"]) == ["spoilt?"]
