"""`rubricem bank` as its users meet it, on a real bank on disk."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("chromadb", reason="the extra `bank` is not installed")

from rubricem_agent.cli.bank import bank_app
from rubricem_agent.memory.chroma_store import ChromaStore
from rubricem_agent.memory.snapshot import save_snapshot
from rubricem_agent.wiring.eval_plan import read_seen
from rubricem_agent.wiring.input_hashes import bank_sha256
from rubricem_agent.wiring.memory import open_existing_bank
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_records.bank.bank_items import BankItem, StoredItem
from tests.fakes import make_reflection

QUESTIONS = ("How wide is the Tall Fox river?", "How wide is the Amber Badger river?", "Who wrote the almanac?")


@pytest.fixture
def run(tmp_path):
    """Runs a command on a bank of three items; gives what it printed."""

    def run(*arguments, code=0):
        result = CliRunner().invoke(bank_app, [*arguments, "--bank", str(tmp_path / "bank")])
        if isinstance(result.exception, UsageError):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.stdout

    (tmp_path / "in.jsonl").write_text("\n".join(make_reflection(question).model_dump_json() for question in QUESTIONS))
    run("import", str(tmp_path / "in.jsonl"), "--embedder", "hashing")
    return run


def test_list_shows_each_item_on_its_line_or_whole_as_json(run):
    assert "Tall Fox" in run("list")
    items = json.loads(run("list", "--json"))["items"]
    assert [item["reflection"]["question"] for item in items] == list(QUESTIONS)


def test_show_tells_where_an_item_came_from(run):
    shown = run("show", "1")
    # utility = 0.4 * 0.5 + 0.3 * 1.0 + 0.3 * 0.0 = 0.5
    assert "utility 0.500" in shown
    assert "by tiny with prompt abc" in shown
    assert json.loads(run("show", "2", "--json"))["history"] == [2]
    with pytest.raises(UsageError, match="the bank has no item 9"):
        run("show", "9")


def test_search_finds_similar_questions_and_cross_leaves_out_the_question_itself(run):
    found = json.loads(run("search", QUESTIONS[0], "--json"))["found"]
    assert [hit["item"]["id"] for hit in found][:2] == [1, 2]
    offered = json.loads(run("search", QUESTIONS[0], "--cross", "--json"))["found"]
    assert [hit["item"]["id"] for hit in offered] == [2, 3]


def test_an_item_is_quarantined_and_approved(run):
    assert run("quarantine", "2", "--reason", "odd") == "item 2 is quarantined (odd)\n"
    assert json.loads(run("stats", "--json"))["quarantined"] == 1
    assert run("approve", "2") == "item 2 is active\n"


def test_a_removed_item_is_gone_from_list_and_search_and_stays_in_the_history(run):
    removed = json.loads(run("remove", "1", "--reason", "poison", "--json"))
    assert removed == {"id": 1, "status": "removed", "reason": "poison"}
    assert "Tall Fox" not in run("list")
    assert "Tall Fox" not in run("search", QUESTIONS[0])
    assert "Tall Fox" in run("list", "--all")


def test_a_bank_travels_as_a_file(run, tmp_path):
    assert json.loads(run("export", str(tmp_path / "out.jsonl"), "--json"))["exported"] == 3
    run("remove", "3")
    refused = json.loads(run("import", str(tmp_path / "out.jsonl"), "--json", code=1))["refused"]
    assert [(row["line"], row["code"]) for row in refused] == [(3, "removed_before")]


def test_stats_count_by_status(run):
    counted = json.loads(run("stats", "--json"))
    assert (counted["active"], counted["embedder"], counted["mean_utility"]) == (3, "hashing-512", 0.5)


@pytest.mark.parametrize("command", ["list", "stats"])
def test_a_folder_without_a_bank_says_how_to_make_one(command, tmp_path):
    result = CliRunner().invoke(bank_app, [command, "--bank", str(tmp_path)])
    assert isinstance(result.exception, FileFormatError)
    assert "there is no rubric bank in" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_question_is_refused(run):
    assert run("search", " ", code=2) == ""


def test_a_damaged_database_is_one_sentence(run, tmp_path):
    other = tmp_path / "other"
    (other / "chroma").mkdir(parents=True)
    (other / "bank.json").write_text((tmp_path / "bank" / "bank.json").read_text())
    (other / "chroma" / "chroma.sqlite3").write_bytes(b"rubbish" * 1_000)
    result = CliRunner().invoke(bank_app, ["list", "--bank", str(other)])
    assert isinstance(result.exception, FileFormatError)
    assert "could not open the bank" in str(result.exception)


def test_tables_tell_of_search_import_export_and_stats(run, tmp_path):
    assert "similarity" in run("search", QUESTIONS[0])
    assert run("export", str(tmp_path / "out.jsonl")) == f"exported 3 items to {tmp_path / 'out.jsonl'}\n"
    assert run("import", str(tmp_path / "out.jsonl")) == "imported 3 items, refused 0\n"
    assert "mean utility  0.5" in run("stats")


def test_a_bank_without_active_items_finds_nothing(run):
    for number in ("1", "2", "3"):
        run("remove", number)
    assert run("search", QUESTIONS[0]) == "nothing found\n"
    assert run("list") == "no items\n"


def test_a_file_to_import_that_is_not_there_makes_no_bank(tmp_path):
    result = CliRunner().invoke(bank_app, ["import", str(tmp_path / "none"), "--bank", str(tmp_path / "new")])
    assert "there is no file" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_to_import_makes_no_bank(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    result = CliRunner().invoke(bank_app, ["import", str(tmp_path / "empty.jsonl"), "--bank", str(tmp_path / "new")])
    assert "there is no reflection in" in str(result.exception)
    assert not (tmp_path / "new").exists()


def test_a_bank_in_a_files_place_is_refused_as_a_file(tmp_path):
    (tmp_path / "bank").write_text("")
    with pytest.raises(FileFormatError, match=r"bank is a file, and a bank is a folder\. Give a folder with --bank\."):
        ChromaStore.open(tmp_path / "bank", embedder="plane", dimension=2)


def test_a_bank_that_cannot_be_made_is_one_sentence(run, tmp_path):
    (tmp_path / "taken").write_text("")
    folder = tmp_path / "taken" / "bank"
    result = CliRunner().invoke(
        bank_app, ["import", str(tmp_path / "in.jsonl"), "--bank", str(folder), "--embedder", "hashing"]
    )
    assert isinstance(result.exception, FileFormatError)


def test_text_of_an_item_of_an_older_release_cannot_move_the_cursor_or_set_colours(tmp_path):
    item = BankItem(
        id=1, revision=1, reflection=make_reflection("How \x1b[2J[red]wide[/red]?", takeaways="Measure it.")
    )
    store = ChromaStore.open(tmp_path, embedder="plane", dimension=2)
    store.put([StoredItem(item, np.ones(2, dtype=np.float32))])
    for command in (["list"], ["show", "1"]):
        output = CliRunner().invoke(bank_app, [*command, "--bank", str(tmp_path)]).stdout
        assert "\x1b[2J" not in output
        assert "[red]wide[/red]" in output


@pytest.fixture
def snapshot(run, tmp_path):
    """The same bank as a checkpoint has it."""
    path = tmp_path / "bank.npz"
    save_snapshot(open_existing_bank(tmp_path / "bank", embeds=True), path, step=12)
    return path


@pytest.mark.parametrize(
    "command", [("list",), ("show", "1"), ("search", "How wide is the Tall Fox?"), ("stats",), ("list", "--json")]
)
def test_the_bank_of_a_checkpoint_is_read_as_a_folder_is(command, run, snapshot, tmp_path):
    read = CliRunner().invoke(bank_app, [*command, "--bank", str(snapshot)])
    assert (read.exit_code, read.output) == (
        0,
        CliRunner().invoke(bank_app, [*command, "--bank", str(tmp_path / "bank")]).output,
    )


def test_the_bank_of_a_checkpoint_has_the_lessons_of_an_evaluation(snapshot, tmp_path):
    assert bank_sha256(snapshot) == bank_sha256(tmp_path / "bank")
    assert read_seen(snapshot) == read_seen(tmp_path / "bank")
    assert len(open_existing_bank(snapshot, embeds=True).retrieve(QUESTIONS[0], "within")) == 1


@pytest.mark.parametrize("command", [("remove", "1"), ("approve", "1"), ("import", "in.jsonl")])
def test_the_bank_of_a_checkpoint_is_not_changed(command, snapshot, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = snapshot.read_bytes()
    told = CliRunner().invoke(bank_app, [*command, "--bank", str(snapshot)])
    assert "is the bank of a checkpoint and is not changed. Make a bank of it: rubricem bank export" in str(
        told.exception
    )
    assert snapshot.read_bytes() == before


def test_a_bank_of_a_checkpoint_that_is_not_there_is_one_sentence(tmp_path):
    told = CliRunner().invoke(bank_app, ["list", "--bank", str(tmp_path / "none.npz")])
    assert "there is no bank snapshot" in str(told.exception)
