"""Atomic writes."""

import pytest

from rubricem_records.files.atomic_files import write_atomic


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


SHARES = """
import pathlib, sys
from rubricem_records.files.run_lock import lock_folder
lock_folder(pathlib.Path(sys.argv[1]))
"""
