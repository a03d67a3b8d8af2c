"""The lock of a run's folder."""

import os
import socket
import subprocess
import sys
from contextlib import closing

import pytest

from rubricem_env.domain.errors import ConfigError
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
    assert start(stdin=subprocess.DEVNULL).returncode
    assert start(stdin=lock.fileno()).returncode == 0
    # The process that shared the lock had it last; this one takes the name again.
    (tmp_path / "run" / ".lock").write_text(f"{os.getpid()} {socket.gethostname()}\n")
    assert f"run: process {os.getpid()}; wait for it, end it with `kill -INT".encode() in (
        start(stdin=subprocess.DEVNULL).stderr
    )
    with (tmp_path / "run" / ".lock").open() as unlocked:
        assert b"another process trains in" in start(stdin=unlocked).stderr
    lock.close()
    assert start(stdin=subprocess.DEVNULL).returncode == 0


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "run; wait for it, or choose"),
        ("what\n", "run; wait for it, or choose"),
        (
            "12 far-away\n",
            "run: process 12 on far-away; wait for it, end it with `kill -INT 12` on far-away, or choose",
        ),
    ],
)
def test_a_refusal_names_the_process_as_far_as_the_file_does(tmp_path, written, said):
    folder = tmp_path / "run"
    with closing(lock_folder(folder)):
        (folder / ".lock").write_text(written)
        with pytest.raises(ConfigError, match="trains in") as refusal:
            lock_folder(folder)
    assert said in str(refusal.value)
