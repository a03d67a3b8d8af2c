"""Real Chroma: killed, reopened, shared by two processes, replaced."""

import math
import os
import shutil
import signal
import subprocess
import sys
import threading
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("chromadb", reason="the extra `bank` is not installed")

from chromadb.api.shared_system_client import SharedSystemClient

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.chroma_store import ChromaStore
from rubricem_agent.memory.store import BankStoreError
from rubricem_env.domain.errors import FileFormatError
from rubricem_records.bank.bank_items import BankItem
from tests.fakes import PlaneEmbedder, make_reflection

# Writes questions at 0, 1, 2 ... and says the number of each one that the bank has acknowledged.
WRITER = """
import sys
from pathlib import Path
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.chroma_store import ChromaStore
from tests.fakes import PlaneEmbedder, make_reflection

folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
bank = RubricBank(ChromaStore.open(folder, embedder="plane", dimension=2), PlaneEmbedder())
for number in range(first, first + count):
    bank.write(make_reflection(f"at {number / 10}", step=number))
    print(number, flush=True)
"""


def open_bank(folder: Path) -> RubricBank:
    return RubricBank(ChromaStore.open(folder, embedder="plane", dimension=2), PlaneEmbedder())


def start_writer(folder: Path, *, first: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(first), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def steps(bank: RubricBank) -> list[int]:
    return sorted(item.reflection.provenance.step for item in bank.items())


def test_a_bank_opened_again_has_what_was_written(tmp_path):
    bank = open_bank(tmp_path)
    bank.write(make_reflection("at 0"))
    assert not bank._store._client.get_settings().anonymized_telemetry
    assert [item.reflection for item in open_bank(tmp_path).items()] == [make_reflection("at 0")]


@pytest.mark.parametrize("damage", ["empty", "missing", "without its folder"])
def test_a_bank_whose_database_is_lost_is_refused_and_not_opened_as_an_empty_one(tmp_path, damage):
    open_bank(tmp_path).write(make_reflection("at 0"))
    if damage == "without its folder":
        shutil.rmtree(tmp_path / "chroma")
    else:
        (tmp_path / "chroma" / "chroma.sqlite3").unlink()
        if damage == "empty":
            (tmp_path / "chroma" / "chroma.sqlite3").touch()
    SharedSystemClient.clear_system_cache()  # as a new process finds it
    with pytest.raises(FileFormatError, match=r"has lost its database: .* Restore that folder from a copy"):
        open_bank(tmp_path)


@pytest.mark.parametrize("vector", [[1.0], [math.nan, 0.0]])
def test_a_damaged_vector_is_refused_with_the_number_of_its_item(tmp_path, vector):
    store = ChromaStore.open(tmp_path, embedder="plane", dimension=2)
    item = BankItem(id=7, revision=1, reflection=make_reflection("at 0"))
    put_vector = {"vector": b64encode(np.array(vector, dtype="<f4").tobytes()).decode(), "revision": 1}
    store._collection.upsert(
        ids=["7"], embeddings=[[1.0, 0.0]], documents=[item.model_dump_json()], metadatas=[put_vector]
    )
    with pytest.raises(BankStoreError, match="the vector of item 7 is damaged"):
        RubricBank(store, PlaneEmbedder())


def test_a_bank_that_was_never_written_to_is_opened_again(tmp_path):
    (tmp_path / "bank.json").write_text('{"version": 1, "embedder": "plane", "dimension": 2}')
    assert len(open_bank(tmp_path)) == 0


def test_after_kill_9_during_writes_every_acknowledged_row_is_found_and_more_can_be_written(tmp_path):
    writer = start_writer(tmp_path, first=0, count=100_000)
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(25)]
    os.kill(writer.pid, signal.SIGKILL)
    acknowledged += [int(line) for line in writer.stdout if line.strip().isdecimal() and line.endswith("\n")]
    writer.wait()
    writer.stdout.close()
    bank = open_bank(tmp_path)
    written = steps(bank)
    # One more may have been written without the process living to say so.
    assert written[: len(acknowledged)] == acknowledged
    assert len(written) - len(acknowledged) in (0, 1)
    found = {bank.retrieve(f"at {number / 10}", "within")[0].item.id for number in acknowledged}
    assert len(found) == len(acknowledged)
    assert len(bank.search("at 0", limit=1_000)) == len(written)
    assert bank.write(make_reflection("at 300")) == bank.items()[-1]


def test_two_processes_write_to_one_bank_without_losing_a_row_or_giving_a_number_twice(tmp_path):
    watching = open_bank(tmp_path)
    writers = [start_writer(tmp_path, first=first, count=20) for first in (0, 100)]
    for writer in writers:
        writer.communicate(timeout=120)
    assert [writer.returncode for writer in writers] == [0, 0]
    assert steps(watching) == [*range(20), *range(100, 120)]
    assert [item.id for item in watching.items()] == list(range(1, 41))


def test_threads_share_one_bank(tmp_path):
    bank = open_bank(tmp_path)

    def write(first: int) -> None:
        for number in range(first, first + 10):
            bank.write(make_reflection(f"at {number}"))
            bank.retrieve("at 0", "cross")

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [item.id for item in bank.items()] == list(range(1, 31))


def test_a_bank_written_by_a_newer_release_is_refused(tmp_path):
    (tmp_path / "bank.json").write_text('{"version": 2, "index": "unheard of"}')
    with pytest.raises(FileFormatError, match=r"written by a newer release \(version 2; this one reads up to 1\)"):
        open_bank(tmp_path)


@pytest.mark.parametrize("header", ["", "[]", "{}", '{"version": 1}', '{"version": "1"}', "\x00"])
def test_a_broken_header_is_refused_in_one_sentence(tmp_path, header):
    (tmp_path / "bank.json").write_text(header)
    with pytest.raises(FileFormatError, match="not the header of a rubric bank"):
        open_bank(tmp_path)


def test_a_bank_sees_what_another_one_on_the_same_folder_restores(tmp_path):
    one, other = open_bank(tmp_path), open_bank(tmp_path)
    one.write(make_reflection("at 0"))
    saved = one.contents()
    one.write(make_reflection("at 50"))
    assert len(other) == 2
    one.restore(saved)
    assert [item.id for item in other.items()] == [1]
    other.write(make_reflection("at 80"))
    assert [hit.item.id for hit in one.retrieve("at 0", "cross")] == [2]


def test_a_restore_cut_off_half_way_changes_nothing(tmp_path):
    bank = open_bank(tmp_path)
    bank.write(make_reflection("at 0"))
    store = ChromaStore.open(tmp_path, embedder="plane", dimension=2)

    def broken():
        yield from bank.contents()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.replace_all(broken())
    assert len(open_bank(tmp_path)) == 1
    bank.restore(())
    assert len(open_bank(tmp_path)) == 0


class Killed(BaseException):
    """As a process ends, wherever it stands."""


class Dying:
    """A client whose process is killed when it comes to delete the old items."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        return getattr(self._client, name)

    def delete_collection(self, name):
        raise Killed


@pytest.mark.parametrize("change", ["write", "restore", "remove"])
def test_what_is_written_after_another_process_was_killed_while_replacing_the_items_is_there(tmp_path, change):
    dying = ChromaStore.open(tmp_path, embedder="plane", dimension=2)
    one, other = RubricBank(dying, PlaneEmbedder()), open_bank(tmp_path)
    one.write(make_reflection("at 0", step=1))
    saved = one.contents()
    assert len(other) == 1
    dying._client = Dying(dying._client)
    with pytest.raises(Killed):
        one.restore(saved)
    if change == "write":
        other.write(make_reflection("at 50", step=2))
    elif change == "restore":
        other.restore(())
    else:
        other.change(1, "removed", "poison")
    assert other.items() == open_bank(tmp_path).items()
    assert len(other) == {"write": 2, "restore": 0, "remove": 0}[change]


def test_a_writer_drops_the_items_that_a_killed_restore_has_replaced(tmp_path):
    dying = ChromaStore.open(tmp_path, embedder="plane", dimension=2)
    one, other = RubricBank(dying, PlaneEmbedder()), open_bank(tmp_path)
    one.write(make_reflection("at 0", step=1))
    saved = one.contents()
    one.write(make_reflection("at 90", step=2))
    assert steps(other) == [1, 2]
    dying._client = Dying(dying._client)
    with pytest.raises(Killed):
        one.restore(saved)

    other.write(make_reflection("at 45", step=3))

    # Neither the writer nor the store has the item of step 2, which the snapshot does not have.
    assert steps(other) == steps(open_bank(tmp_path)) == [1, 3]


@pytest.mark.parametrize("status", ["quarantined", "removed"])
def test_a_lesson_that_one_process_withholds_is_withheld_in_the_others(tmp_path, status):
    one, other = open_bank(tmp_path), open_bank(tmp_path)
    item = one.write(make_reflection("at 0"))
    assert len(other.retrieve("at 0", "within")) == 1

    one.change(item.id, status, "poison")

    assert other.retrieve("at 0", "within") == ()


def test_a_write_torn_between_its_two_rows_leaves_one_active_item(tmp_path):
    bank = open_bank(tmp_path)
    bank.write(make_reflection("at 0", takeaways="old"))
    old = bank.contents()[0]
    bank.write(make_reflection("at 0", takeaways="new"))
    # As if the process had died after the new row and before the old one stepped back.
    ChromaStore.open(tmp_path, embedder="plane", dimension=2).put([old])
    found = open_bank(tmp_path).retrieve("at 0", "within")
    assert [hit.item.reflection.takeaways for hit in found] == ["new"]


def test_what_a_killed_restore_had_begun_is_not_among_the_items_of_the_next_one(tmp_path):
    bank = open_bank(tmp_path)
    bank.write(make_reflection("at 0"))
    left = bank._store._client.get_or_create_collection("items-2", embedding_function=None)
    item = BankItem(id=9, revision=9, reflection=make_reflection("at 90"))
    vector = {"vector": b64encode(np.array([0.0, 1.0], dtype="<f4").tobytes()).decode(), "revision": 9}
    left.upsert(ids=["9"], embeddings=[[0.0, 1.0]], documents=[item.model_dump_json()], metadatas=[vector])
    bank.restore(bank.contents())
    assert [item.id for item in open_bank(tmp_path).items()] == [1]
