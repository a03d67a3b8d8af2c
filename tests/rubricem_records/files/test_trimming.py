"""Logs that are cut back to a step."""

from rubricem_records.files.trimming import trim_log


def test_trimming_drops_later_steps_and_broken_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\nbroken\n{"step": 1, "warning": "x"}\n{"ste')
    trim_log(path, 1)
    assert path.read_text() == '{"step": 1}\n{"step": 1, "warning": "x"}\n'


SHARES = """
import pathlib, sys
from rubricem_records.files.run_lock import lock_folder
lock_folder(pathlib.Path(sys.argv[1]))
"""
