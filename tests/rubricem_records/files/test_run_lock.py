"""The lock of a run's folder."""

import subprocess
import sys

from rubricem_records.files.run_lock import lock_folder

SHARES = """
import pathlib, sys
from rubricem_records.files.run_lock import lock_folder
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
