"""The truth of the tables, worked out a second time in Python, and by DuckDB; the same seed gives the same bytes."""

import hashlib
import sqlite3

import pytest

from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.world.almanac import to_jsonl
from rubricem_env.world.tables.questions import MISTAKES, OUTDATED, number_of
from rubricem_env.world.tables.rows import COLUMNS
from rubricem_env.world.tables.table_world import TableWorld, load_table_questions, main

WORLD = TableWorld.from_seed(0)
M3_PER_S = {"l/s": 0.001, "m3/s": 1}
M3 = {"ML": 1_000, "m3": 1}


def by_hand(question):
    """The right number, without SQL."""
    rows = WORLD.rows.rows
    place, year, status = question.filters[0], int(question.filters[1]), question.filters[2]
    stations = {number for number, river, region in rows["stations"] if place in (river, region)}
    rivers = {river for _, river, region in rows["stations"] if place in (river, region)}
    flows = [
        flow * M3_PER_S[unit]
        for _, station, when, flow, unit, state in rows["readings"]
        if station in stations and (when, state) == (year, status)
    ]
    permits = [
        volume * M3[unit]
        for _, river, when, volume, unit, state in rows["permits"]
        if river in rivers and (when, state) == (year, status)
    ]
    of_kind = {"flow": sum(flows), "peak": max(flows, default=0), "volume": sum(permits), "permits": len(permits)}
    return round(of_kind[question.kind], 1)


@pytest.mark.parametrize("question", WORLD.questions, ids=lambda question: question.id)
def test_the_right_number_is_right_and_no_mistake_gives_it(question):
    assert float(question.value) == by_hand(question)
    assert len(question.mistakes) >= 2
    assert question.value not in {mistake.value for mistake in question.mistakes}
    assert not set(question.tables) & set(OUTDATED)


def test_every_kind_of_mistake_and_of_question_occurs_in_every_world():
    for seed in range(5):
        world = TableWorld.from_seed(seed)
        assert {mistake.kind for question in world.questions for mistake in question.mistakes} == set(MISTAKES)
        for split in ("train", "validation", "test"):
            kinds = {question.kind for question in world.questions_of(split)}
            assert len(kinds) >= 3, (seed, split)


def test_no_place_of_a_split_is_asked_about_in_another():
    places = {
        split: {each.filters[0] for each in WORLD.questions_of(split)} for split in ("train", "validation", "test")
    }

    assert not places["train"] & places["validation"]
    assert not places["train"] & places["test"]
    assert not places["validation"] & places["test"]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        TableWorld.from_seed(seed).write_csv(tmp_path / name)
    bytes_of = {
        name: [(tmp_path / name / f"{table}.csv").read_bytes() for table in COLUMNS] for name in ("a", "b", "c")
    }

    assert bytes_of["a"] == bytes_of["b"] != bytes_of["c"]
    written = hashlib.sha256(b"".join(bytes_of["a"]) + to_jsonl(WORLD.questions)).hexdigest()
    assert written == "a102fd9f81bf6f9e778b8eb99c6998e64336435c9b1c925ef25b70421df7ce7a"


def test_duckdb_and_a_sqlite_file_give_the_numbers_of_the_truth(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    WORLD.write_csv(tmp_path / "csv")
    WORLD.write_sqlite(tmp_path / "world.sqlite")
    own, other = sqlite3.connect(tmp_path / "world.sqlite"), duckdb.connect()
    for table in COLUMNS:
        other.execute(f"CREATE VIEW {table} AS FROM read_csv('{tmp_path}/csv/{table}.csv')")

    for question in WORLD.questions:
        for truth in (question, *question.mistakes):
            assert number_of(own, truth.sql) == number_of(other, truth.sql) == truth.value
    own.close()
    other.close()


def test_an_unknown_split_or_a_negative_seed_is_refused():
    with pytest.raises(UsageError, match="the tables have no split 'dev'"):
        WORLD.questions_of("dev")
    with pytest.raises(UsageError, match="world seed is -1"):
        TableWorld.from_seed(-1)


def test_the_command_writes_the_tables_and_beside_them_the_truth(tmp_path, capsys):
    assert main(["--seed", "0", "--out", str(tmp_path / "w")]) == 0

    assert f"and {len(WORLD.questions)} questions in" in capsys.readouterr().out
    assert sorted(file.stem for file in (tmp_path / "w").iterdir()) == sorted(COLUMNS)
    assert load_table_questions(tmp_path / "w.questions.jsonl") == WORLD.questions
    assert main(["--seed", "-1", "--out", str(tmp_path / "w")]) == 2
    (tmp_path / "w.questions.jsonl").write_text('{"id": "x"}\n')
    with pytest.raises(FileFormatError, match="line 1 is not a TableQuestion"):
        load_table_questions(tmp_path / "w.questions.jsonl")
