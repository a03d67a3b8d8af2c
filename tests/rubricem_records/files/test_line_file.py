"""Append-only files of lines."""

import resource
import signal

import pytest

from rubricem_records.files.line_file import LineFile


def test_a_truncated_last_line_is_not_read_and_repair_removes_it(tmp_path):
    file = LineFile(tmp_path / "log.jsonl")
    assert file.append([b"one", b"two"]) == 0
    with file.path.open("ab") as raw:
        raw.write(b"thr")
    assert file.read() == [b"one", b"two"]
    assert file.repair() == 3
    assert file.append([b"three"]) == 8
    assert file.read() == [b"one", b"two", b"three"]


def test_a_missing_file_has_no_lines_and_needs_no_repair(tmp_path):
    file = LineFile(tmp_path / "none.jsonl")
    assert (file.read(), file.repair()) == ([], 0)


def test_lines_that_do_not_fit_leave_the_file_unchanged(tmp_path):
    file = LineFile(tmp_path / "log.jsonl")
    file.append([b"one"])
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            file.append([b"x" * 200])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, heard)
    assert file.read() == [b"one"]
    assert file.path.stat().st_size == 4


def test_a_second_writer_cannot_take_the_lock(tmp_path):
    first, second = LineFile(tmp_path / "log.jsonl"), LineFile(tmp_path / "log.jsonl")
    first.lock()
    with pytest.raises(BlockingIOError):
        second.lock()
    first.append([b"one"])
    first.close()
    second.lock()
    second.append([b"two"])
    second.close()
    assert second.read() == [b"one", b"two"]


SHARES = """
import pathlib, sys
from rubricem_records.files.run_lock import lock_folder
lock_folder(pathlib.Path(sys.argv[1]))
"""
