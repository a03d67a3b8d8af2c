"""Which files of a folder are tables, and which folders are refused, in one sentence with a way out."""

import os

import pytest

from rubricem_env.domain.errors import ConfigError
from rubricem_env.tools.tables.files import MAX_TABLES, is_sqlite, table_files


def test_the_tables_are_the_files_of_the_folder_by_name(tmp_path):
    for name in ("b.CSV", "a.parquet", "c.tsv", "d.csv.gz", "notes.txt", ".hidden.csv"):
        (tmp_path / name).write_text("x")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "e.csv").write_text("x")

    found = table_files(tmp_path)
    assert [(file.table, file.kind) for file in found] == [("a", "parquet"), ("b", "csv"), ("c", "csv"), ("d", "csv")]


def test_a_link_within_the_folder_is_read_and_one_out_of_it_is_refused(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    (place / "a.csv").write_text("x")
    (place / "b.csv").symlink_to(place / "a.csv")
    assert [file.table for file in table_files(place)] == ["a", "b"]

    (tmp_path / "secret.csv").write_text("x")
    (place / "c.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(ConfigError, match=r"c\.csv is a link to a file outside of .+; only what lies in it is read"):
        table_files(place)


def test_a_pipe_or_a_dangling_link_is_no_table(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(ConfigError, match=r"a\.csv is no file"):
        table_files(tmp_path)
    (tmp_path / "a.csv").unlink()
    (tmp_path / "b.csv").symlink_to(tmp_path / "gone.csv")
    with pytest.raises(ConfigError, match=r"b\.csv is no file"):
        table_files(tmp_path)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "has no CSV or Parquet file"),
        (["a.csv", "A.parquet"], "are both the table"),
        (["a[1].csv"], "would be a pattern"),
        ([f"t{number}.csv" for number in range(MAX_TABLES + 1)], f"at most {MAX_TABLES} are read"),
    ],
)
def test_a_folder_that_cannot_be_read_says_why(tmp_path, names, words):
    for name in names:
        (tmp_path / name).write_text("x")

    with pytest.raises(ConfigError, match=words):
        table_files(tmp_path)


def test_a_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no folder or SQLite file .+\. Give a folder"):
        table_files(tmp_path / "gone")


def test_a_sqlite_file_is_known_by_its_first_bytes(tmp_path):
    (tmp_path / "a.db").write_bytes(b"SQLite format 3\0 and more")
    (tmp_path / "b.db").write_bytes(b"other")

    assert (is_sqlite(tmp_path / "a.db"), is_sqlite(tmp_path / "b.db"), is_sqlite(tmp_path)) == (True, False, False)
