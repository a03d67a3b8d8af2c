"""Atomic writes, append-only files of lines, and logs cut back to a step."""

import resource
import signal
import subprocess
import sys

import pytest

from rubricem_records.atomic_files import write_atomic
from rubricem_records.line_file import LineFile
from rubricem_records.run_lock import lock_folder
from rubricem_records.trimming import trim_log


def test_a_failed_write_leaves_the_old_file_and_no_partial_one(tmp_path):
    path = tmp_path / "state.json"
    write_atomic(path, "old")

    def fail(file):
        file.write(b"ne")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        write_atomic(path, fail)
    assert [path.name] == [entry.name for entry in tmp_path.iterdir()]
    assert path.read_text() == "old"


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


def test_trimming_drops_later_steps_and_broken_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\nbroken\n{"step": 1, "warning": "x"}\n{"ste')
    trim_log(path, 1)
    assert path.read_text() == '{"step": 1}\n{"step": 1, "warning": "x"}\n'


SHARES = """
import pathlib, sys
from rubricem_records.run_lock import lock_folder
lock_folder(pathlib.Path(sys.argv[1]))
"""


def test_a_locked_folder_is_shared_only_with_a_process_that_was_given_the_lock(tmp_path):
    def start(**options):
        return subprocess.run([sys.executable, "-c", SHARES, tmp_path / "run"], **options, stderr=subprocess.PIPE)

    lock = lock_folder(tmp_path / "run")
    assert start(stdin=lock.fileno()).returncode == 0
    assert b"another process trains in" in start(stdin=subprocess.DEVNULL).stderr
    with (tmp_path / "run" / ".lock").open() as unlocked:
        assert b"another process trains in" in start(stdin=unlocked).stderr
    lock.close()
    assert start(stdin=subprocess.DEVNULL).returncode == 0
