"""Snapshots: of one step, whole, checked, and the same after a resume."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rubricem_agent.memory.bank import Retrieval, RubricBank
from rubricem_agent.memory.snapshot import load_snapshot, save_snapshot, snapshot_path
from rubricem_agent.memory.store import BankFormatError, ItemStatus, MemoryStore
from rubricem_env.domain.errors import UsageError
from rubricem_env.testing.judges import PlaneEmbedder, make_reflection


def empty_bank(name="plane"):
    embedder = PlaneEmbedder()
    embedder.name = name
    return RubricBank.open(MemoryStore(embedder=name, dimension=2), embedder)


def test_a_run_resumed_at_step_7_finds_and_writes_what_the_unbroken_one_does(bank, tmp_path):
    bank.write(make_reflection("at 0", takeaways="old"))
    bank.write(make_reflection("at 0", takeaways="new"))
    bank.write(make_reflection("at 40"))
    path = snapshot_path(tmp_path, 7)
    save_snapshot(bank, path, step=7)
    resumed = empty_bank()
    load_snapshot(resumed, path, step=7)
    for one in (bank, resumed):
        one.write(make_reflection("at 60"))
    assert resumed.items() == bank.items()
    assert resumed.retrieve("at 20", Retrieval.CROSS) == bank.retrieve("at 20", Retrieval.CROSS)


def test_loading_forgets_what_was_written_after_the_snapshot(bank, tmp_path):
    bank.write(make_reflection("at 0"))
    save_snapshot(bank, tmp_path / "bank.npz", step=7)
    bank.write(make_reflection("at 40"))
    load_snapshot(bank, tmp_path / "bank.npz", step=7)
    assert [item.id for item in bank.items()] == [1]


def test_what_was_removed_after_the_snapshot_does_not_come_back(bank, tmp_path):
    bank.write(make_reflection("at 0"))
    save_snapshot(bank, tmp_path / "bank.npz", step=7)
    bank.remove(1, "poison")
    load_snapshot(bank, tmp_path / "bank.npz", step=7)
    assert [item.status for item in bank.items()] == [ItemStatus.REMOVED]


def test_a_snapshot_of_another_step_is_refused(bank, tmp_path):
    save_snapshot(bank, tmp_path / "bank.npz", step=590)
    with pytest.raises(UsageError, match="checkpoint at step 600 holds a bank of step 590; refusing to mix them"):
        load_snapshot(bank, tmp_path / "bank.npz", step=600)


def test_a_snapshot_of_another_embedder_is_refused(bank, tmp_path):
    save_snapshot(bank, tmp_path / "bank.npz", step=1)
    with pytest.raises(BankFormatError, match=r"Set bank\.embedder to plane to resume"):
        load_snapshot(empty_bank("other"), tmp_path / "bank.npz", step=1)


def test_an_empty_bank_can_be_saved_and_loaded(bank, tmp_path):
    save_snapshot(bank, tmp_path / "bank.npz", step=0)
    load_snapshot(bank, tmp_path / "bank.npz", step=0)
    assert bank.items() == ()


def test_a_missing_snapshot_is_named(bank, tmp_path):
    with pytest.raises(BankFormatError, match=r"no bank snapshot .*bank\.npz; a checkpoint needs the bank of its step"):
        load_snapshot(bank, tmp_path / "bank.npz", step=1)


def test_a_changed_item_is_noticed_by_the_hash(bank, tmp_path):
    path = tmp_path / "bank.npz"
    bank.write(make_reflection("at 0", takeaways="honest"))
    save_snapshot(bank, path, step=1)
    with np.load(path) as file:
        parts = dict(file)
    forged = parts["contents"].tobytes().replace(b"honest", b"forged")
    np.savez(path, **(parts | {"contents": np.frombuffer(forged, dtype=np.uint8)}))
    with pytest.raises(BankFormatError, match="damaged: its contents do not match its hash"):
        load_snapshot(bank, path, step=1)


def test_a_pickle_is_refused_and_never_run(bank, tmp_path):
    path = tmp_path / "bank.npz"
    np.savez(path, contents=np.array([print], dtype=object), vectors=np.zeros(1), sha256=np.zeros(1))
    with pytest.raises(BankFormatError, match="not a bank snapshot"):
        load_snapshot(bank, path, step=1)


def test_a_snapshot_of_a_newer_release_is_refused(bank, tmp_path, monkeypatch):
    path = tmp_path / "bank.npz"
    monkeypatch.setattr("rubricem_agent.memory.snapshot._Contents", _future_contents())
    save_snapshot(bank, path, step=1)
    monkeypatch.undo()
    with pytest.raises(BankFormatError, match="not a bank snapshot that this release reads"):
        load_snapshot(bank, path, step=1)


def _future_contents():
    class Contents:
        def __init__(self, **parts):
            self.parts = parts

        def model_dump_json(self):
            return json.dumps({**self.parts, "version": 2})

    return Contents


def test_a_save_that_fails_leaves_the_old_file(bank, tmp_path):
    path = tmp_path / "bank.npz"
    save_snapshot(bank, path, step=1)
    before = path.read_bytes()
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        save_snapshot(bank, tmp_path / "folder", step=2)
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["bank.npz", "folder"]


@given(st.binary(max_size=300))
def test_any_other_file_is_refused_with_a_sentence(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "bank.npz"
    path.write_bytes(content)
    with pytest.raises(BankFormatError):
        load_snapshot(empty_bank(), path, step=1)
