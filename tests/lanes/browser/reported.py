"""`rubricem report`, as a person runs it."""

import subprocess
from pathlib import Path

from tests.lanes.browser.served import COMMAND


def report_of(run: Path, folder: Path) -> str:
    """The address of the page on disk."""
    path = folder / "report.html"
    subprocess.run([*COMMAND, "report", str(run), "-o", str(path), "--quiet"], check=True, capture_output=True)
    return path.as_uri()
