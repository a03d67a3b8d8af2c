"""veRL's own queue behaves as the interface says, and as the fake of the tests does: put, read, balance and clear."""

from types import SimpleNamespace

import numpy as np
import pytest
import ray
import transfer_queue as tq
from omegaconf import OmegaConf

from rubricem_agent.learn.samples import Sample
from tests.trainers.verl_backend.fakes import FakeQueue
from trainers.verl_backend.row_queue import held_groups, read_tokens, remove_trained, sample_again
from trainers.verl_backend.rows import reflection_row
from trainers.verl_backend.trainer import StageTrainer
from trainers.verl_backend.transfer_rows import TransferRows, tags_of

LENGTHS = (3, 9, 5)


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=2, include_dashboard=False)
    storage = {"SimpleStorage": {"num_data_storage_units": 1}}
    tq.init(OmegaConf.create({"backend": {"storage_backend": "SimpleStorage", **storage}}))
    yield TransferRows()
    tq.close()
    ray.shutdown()


@pytest.fixture(params=["veRL's", "the fake"])
def queue(request):
    return request.getfixturevalue("cluster") if request.param == "veRL's" else FakeQueue()


def lessons(lengths=LENGTHS):
    """Rows of reflections of so many tokens, two of them the prompt's."""
    made = {}
    for number, length in enumerate(lengths):
        sample = Sample(
            token_ids=tuple(range(length)),
            stage_ids=(-1, -1, *(0,) * (length - 2)),
            rollout_logprobs=(0.0,) * length,
            advantages=np.array((0.0, 0.0, *(0.5,) * (length - 2))),
            temperature=0.7,
            policy_version=4,
        )
        made[f"lesson{number}_0_0"] = reflection_row(sample, uid=f"lesson{number}", step=5)
    return {key: tag for key, (_, tag) in made.items()}, [fields for fields, _ in made.values()]


def test_what_was_put_is_read_in_any_order_and_gone_once_cleared(queue):
    tags, rows = lessons()
    queue.put("reflect", tags, rows)
    keys = list(tags)

    read = queue.read("reflect", [keys[1], keys[0]], ["input_ids", "nothing"])

    assert [column.tolist() for column in read["input_ids"]] == [list(range(9)), list(range(3))]
    assert "nothing" not in read
    assert {key: tag["seq_len"] for key, tag in queue.tags("reflect").items()} == dict(zip(keys, LENGTHS, strict=True))
    # Of 3 and 9 tokens two are the prompt's, which have no advantage.
    assert read_tokens(queue, "reflect", keys[:2], ["rm_scores"])["rm_scores"].tolist() == [0.5] * 8
    queue.clear("reflect", keys)
    assert queue.tags("reflect") == {}


def test_tags_alone_are_put_and_changed(queue):
    queue.put("train", {"g": {"is_prompt": True, "status": "finished"}, "h_0_0": {"status": "success"}})
    assert held_groups(queue, "train") == {"g"}
    sample_again(queue, "train", ["g"])
    assert queue.tags("train")["g"] == {"is_prompt": True, "status": "pending"}
    remove_trained(queue, "train")
    assert set(queue.tags("train")) == {"g"}
    queue.clear("train", ["g"])


def test_verl_balances_a_batch_that_was_put_and_fills_it_up(cluster):
    tags, rows = lessons()
    batch = cluster.put("reflect", tags, rows)
    group = SimpleNamespace(_dispatch_info={"actor": [0, 1]})
    trainer = object.__new__(StageTrainer)
    vars(trainer).update(
        actor_rollout_wg=group,
        tokenizer=SimpleNamespace(eos_token_id=0),
        _get_required_batch_multiple=lambda ranks: ranks,
    )
    metrics = {}

    balanced = trainer._balance_batch(batch, metrics)

    known = tags_of(balanced)
    padding = [key for key, tag in known.items() if tag.get("is_padding")]
    assert (len(known), len(padding)) == (4, 1)
    assert {key: tag["seq_len"] for key, tag in known.items() if key not in padding} == dict(
        zip(tags, LENGTHS, strict=True)
    )
    assert metrics["global_seqlen/max"] >= metrics["global_seqlen/min"] > 0
    # Two ranks of two rows each: the row that fills up counts as the longest, and is beside the shortest.
    lengths = [tag["seq_len"] for tag in known.values()]
    assert {5, 9} in (set(lengths[:2]), set(lengths[2:]))
    cluster.clear("reflect", list(known))
