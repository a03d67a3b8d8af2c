"""Snapshots: of one step, whole, checked, and the same after a resume."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.snapshot import _digest, load_snapshot, save_snapshot
from rubricem_agent.memory.store import MemoryStore
from rubricem_env.domain.errors import FileFormatError, UsageError
from tests.fakes import PlaneEmbedder, make_reflection


def empty_bank(name="plane"):
    embedder = PlaneEmbedder()
    embedder.name = name
    return RubricBank(MemoryStore(embedder=name, dimension=2), embedder)


def test_a_run_resumed_at_step_7_finds_and_writes_what_the_unbroken_one_does(bank, tmp_path):
    bank.write(make_reflection("at 0", takeaways="old"))
    bank.write(make_reflection("at 0", takeaways="new"))
    bank.write(make_reflection("at 40"))
    path = tmp_path / "bank.npz"
    save_snapshot(bank, path, step=7)
    resumed = empty_bank()
    load_snapshot(resumed, path, step=7)
    for one in (bank, resumed):
        one.write(make_reflection("at 60"))
    assert resumed.items() == bank.items()
    assert resumed.retrieve("at 20", "cross") == bank.retrieve("at 20", "cross")


def test_loading_drops_later_items_and_what_a_person_removed_since_stays_removed(bank, tmp_path):
    for degrees in (0, 20):
        bank.write(make_reflection(f"at {degrees}"))
    save_snapshot(bank, tmp_path / "bank.npz", step=7)
    bank.write(make_reflection("at 40"))
    bank.change(2, "removed", "poison")
    load_snapshot(bank, tmp_path / "bank.npz", step=7)
    assert [item.status for item in bank.items()] == ["active", "removed"]


def test_a_snapshot_of_another_step_is_refused(bank, tmp_path):
    save_snapshot(bank, tmp_path / "bank.npz", step=590)
    with pytest.raises(UsageError, match="checkpoint at step 600 holds a bank of step 590; refusing to mix them"):
        load_snapshot(bank, tmp_path / "bank.npz", step=600)


def test_a_snapshot_of_another_embedder_is_refused(bank, tmp_path):
    save_snapshot(bank, tmp_path / "bank.npz", step=1)
    with pytest.raises(FileFormatError, match=r"Set bank\.embedder to plane to resume"):
        load_snapshot(empty_bank("other"), tmp_path / "bank.npz", step=1)


@pytest.mark.parametrize(
    ("old", "new", "is_signed", "said"),
    [
        (b"honest", b"forged", False, "damaged: its contents do not match its hash"),
        (b'"version":1', b'"version":2', True, "not a bank snapshot that this release reads"),
    ],
)
def test_a_changed_snapshot_and_one_of_a_newer_release_are_refused(bank, tmp_path, old, new, is_signed, said):
    path = tmp_path / "bank.npz"
    bank.write(make_reflection("at 0", takeaways="honest"))
    save_snapshot(bank, path, step=1)
    with np.load(path) as file:
        parts = dict(file)
    contents = parts["contents"].tobytes().replace(old, new)
    parts["contents"] = np.frombuffer(contents, dtype=np.uint8)
    if is_signed:
        parts["sha256"] = np.frombuffer(_digest(contents, parts["vectors"]), dtype=np.uint8)
    np.savez(path, **parts)
    with pytest.raises(FileFormatError, match=said):
        load_snapshot(bank, path, step=1)


def test_a_pickle_is_refused_and_never_run(bank, tmp_path):
    path = tmp_path / "bank.npz"
    np.savez(path, contents=np.array([print], dtype=object), vectors=np.zeros(1), sha256=np.zeros(1))
    with pytest.raises(FileFormatError, match="not a bank snapshot"):
        load_snapshot(bank, path, step=1)


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
def test_any_other_file_and_a_missing_one_are_refused_with_a_sentence(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "bank.npz"
    path.write_bytes(content)
    with pytest.raises(FileFormatError):
        load_snapshot(empty_bank(), path, step=1)
    path.unlink()
    with pytest.raises(FileFormatError, match=r"no bank snapshot .*bank\.npz; a checkpoint needs the bank of its step"):
        load_snapshot(empty_bank(), path, step=1)
