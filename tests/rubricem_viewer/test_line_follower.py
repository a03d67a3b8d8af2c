"""The index of a record: a file of another kind is refused, and a removed one is forgotten."""

import pytest

from rubricem_env.domain.errors import FileFormatError
from rubricem_records.rollouts.run_record import GroupHead
from rubricem_viewer.line_follower import LineFollower, read_bytes


def line(step):
    return GroupHead(at=0, size=1, step=step, place=0, query_key="k", question="?").model_dump_json() + "\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "groups.index.jsonl"


def test_a_removed_record_is_forgotten_and_a_new_one_read_from_its_start(path):
    path.write_text('{"record":2,"name":"a"}\n' + line(1))
    follower = LineFollower(path, GroupHead)
    follower.read()
    path.unlink()
    gone = follower.read()
    path.write_text('{"record":2,"na')
    begun = follower.read()
    path.write_text('{"record":2,"name":"b"}\n' + line(7))

    assert (gone, begun) == (([], True), ([], False))
    assert [one.step for _, one in follower.read()[0]] == [7]


def test_a_file_that_is_no_index_is_refused_with_the_way_out(path):
    path.write_text("hello\n")

    with pytest.raises(FileFormatError, match="Remove the folder"):
        LineFollower(path, GroupHead).read()


def test_what_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="cannot read"):
        read_bytes(tmp_path / "none", 0, 1)
