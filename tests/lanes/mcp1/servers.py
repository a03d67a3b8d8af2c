"""The servers of this lane: ours, started from the main environment as anybody would, and one by other people."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rubricem_env.tools.mcp_session import open_stdio
from tests.rubricem_env.tools.mcp_cases import TOKEN

ROOT = Path(__file__).parents[3]
RUBRICEM = str(ROOT / ".venv/bin/rubricem")
ARGUMENTS = ("tools", "serve", "--backend", "offline")
OURS = partial(open_stdio, RUBRICEM, ARGUMENTS)
TIME_SERVER = Path(sys.executable).with_name("mcp-server-time")


@contextmanager
def serve_over_http(port: int = 0) -> Iterator[str]:
    """Our server as a process of its own; gives its address."""
    command = [RUBRICEM, "tools", "serve", "--transport", "http", "--port", str(port)]
    environment = {**os.environ, "RUBRICEM_TOOLS_TOKEN": TOKEN.get_secret_value()}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("serving http://"), line + process.stderr.read()
        yield line.split()[1]
    finally:
        process.kill()
        process.communicate()
