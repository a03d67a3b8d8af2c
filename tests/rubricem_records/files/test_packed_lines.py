"""Lines that are compressed one by one: appended, read in order, and each alone by its position."""

import gzip

import pytest

from rubricem_env.domain.errors import FileFormatError
from rubricem_records.files.packed_lines import LARGEST_LINE, pack_line, read_packed, unpack_line


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(pack_line(b'{"row":1}') + pack_line(b'{"row":2}'))
    return path


def test_lines_are_read_in_order_and_by_any_reader_of_gzip(file):
    assert list(read_packed(file)) == [b'{"row":1}\n', b'{"row":2}\n']
    assert gzip.decompress(file.read_bytes()) == b'{"row":1}\n{"row":2}\n'


def test_a_line_is_read_alone_by_its_position(file):
    first = pack_line(b'{"row":1}')
    assert unpack_line(file.read_bytes()[len(first) :]) == b'{"row":2}'


@pytest.mark.parametrize("lost", [12, 25])
def test_a_last_line_that_is_still_being_written_is_left_out(file, lost):
    file.write_bytes(file.read_bytes()[:-lost])
    assert list(read_packed(file)) == [b'{"row":1}\n']


def test_what_is_no_whole_line_unpacks_to_nothing():
    assert [unpack_line(packed) for packed in (b"", b"plain text", pack_line(b"x")[:-1])] == [b"", b"", b""]


def test_a_damaged_file_is_refused_by_its_name(file):
    file.write_bytes(file.read_bytes() + b"no compressed line")
    with pytest.raises(FileFormatError, match=r"rows\.jsonl\.gz is damaged"):
        list(read_packed(file))


def test_a_few_kilobytes_that_claim_a_gigabyte_are_no_line(tmp_path):
    bomb = gzip.compress(b"0" * (LARGEST_LINE + 1) + b"\n")
    assert unpack_line(bomb) == b""
    (tmp_path / "rows.jsonl.gz").write_bytes(bomb)
    with pytest.raises(FileFormatError, match="more than"):
        list(read_packed(tmp_path / "rows.jsonl.gz"))


def test_a_file_unpacked_by_hand_is_read_too(file):
    plain = file.with_suffix("")
    plain.write_bytes(gzip.decompress(file.read_bytes()) + b'{"half')
    assert list(read_packed(plain)) == [b'{"row":1}\n', b'{"row":2}\n']
