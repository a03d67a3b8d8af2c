"""`rubricem view` over a folder of runs: recorded ones, a hostile one, an evaluation, an ablation, and a bank."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

from tests.lanes.browser.made_runs import make_runs

COMMAND = (sys.executable, "-m", "rubricem_agent.cli.main")


class Served(NamedTuple):
    """A server that listens."""

    url: str
    folder: Path
    runs: dict[str, str]
    """Ids by name."""

    @property
    def token(self) -> str:
        return self.url.partition("#token=")[2]


@contextmanager
def serve_runs(folder: Path) -> Iterator[Served]:
    """Fill a folder and serve it."""
    make_runs(folder)
    with listen(folder) as served:
        yield served


@contextmanager
def listen(folder: Path) -> Iterator[Served]:
    """Serve a folder of runs."""
    command = [*COMMAND, "view", str(folder), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            yield Served(url, folder, _ids(url))
        finally:
            process.terminate()
            process.wait(timeout=20)


def _ids(url: str) -> dict[str, str]:
    base, _, token = url.partition("#token=")
    request = Request(f"{base}api/runs", headers={"Authorization": f"Bearer {token}"})
    with urlopen(request, timeout=20) as reply:
        return {run["name"]: run["id"] for run in json.load(reply)["runs"]}
