"""The run that `rubricem view` and `rubricem report` show: a folder as it is, or one made of files of attempts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rubricem_records.rollouts.attempt_run import write_attempt_run
from rubricem_records.rollouts.attempts import is_attempt, read_attempts
from rubricem_viewer.run_folder import kind_of


@contextmanager
def open_shown_run(source: Path) -> Iterator[Path]:
    """The folder to show. One that holds attempts and no run, or a file of attempts, becomes a run while it is open.

    Raises:
        FileFormatError: a file of it is no attempt.
    """
    if not _holds_attempts(source):
        yield source
        return
    with TemporaryDirectory(prefix="rubricem-") as place:
        folder = Path(place) / source.resolve().stem
        write_attempt_run(read_attempts(source), folder)
        yield folder


def _holds_attempts(source: Path) -> bool:
    if not source.is_dir():
        return source.is_file()
    entries = list(source.iterdir())
    is_run = any(kind_of(folder) for folder in (source, *entries) if folder.is_dir())
    return not is_run and any(entry.suffix == ".json" and is_attempt(entry) for entry in entries)
