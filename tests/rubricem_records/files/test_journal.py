import pytest

from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_records.evaluations.logs import AnswerRecord, CaseKey
from rubricem_records.files.journal import Journal


def record(example_id: str, given: str | None = None, failure: str = "") -> AnswerRecord:
    return AnswerRecord(benchmark="simpleqa", mode="official", id=example_id, epoch=0, given=given, failure=failure)


def written(path, *records: AnswerRecord) -> None:
    journal = Journal.open(path, AnswerRecord)
    for one in records:
        journal.append(one)
    journal.close()


def test_what_was_appended_is_read_again(tmp_path):
    written(tmp_path / "log", record("a", "yes"), record("b", "no"))

    assert [one.given for one in Journal.read(tmp_path / "log", AnswerRecord).records] == ["yes", "no"]


def test_the_first_final_record_of_a_key_stands_and_a_failure_gives_way_to_it(tmp_path):
    written(tmp_path / "log", record("a", failure="down"), record("a", "first"), record("a", "second"))

    found = Journal.read(tmp_path / "log", AnswerRecord).find(CaseKey("a", 0))

    assert found.given == "first"


@pytest.mark.parametrize("kept", range(1, 12))
def test_a_line_truncated_by_a_kill_is_removed_before_the_next_one(tmp_path, kept):
    path = tmp_path / "log"
    written(path, record("a", "yes"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:kept])

    written(path, record("b", "no"))

    assert [one.id for one in Journal.read(path, AnswerRecord).records] == ["a", "b"]


def test_a_second_writer_is_refused(tmp_path):
    first = Journal.open(tmp_path / "log", AnswerRecord)

    with pytest.raises(UsageError, match="being written by another run"):
        Journal.open(tmp_path / "log", AnswerRecord)
    first.close()


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "log"
    written(path, record("a", "yes"))
    path.write_bytes(b"{}\n" + path.read_bytes())

    with pytest.raises(FileFormatError, match="line 1 is no AnswerRecord"):
        Journal.read(path, AnswerRecord)
