"""Servers of other people that answer as if they were ours, or never shake hands."""

import asyncio
import sys
from functools import partial

import pytest

from rubricem_env.domain.errors import ToolError
from rubricem_env.domain.trajectory import ToolStatus
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.tools.mcp_client import McpLink
from rubricem_env.tools.mcp_result import read_outcome
from rubricem_env.tools.mcp_session import open_stdio

SILENT = (
    "import pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(__import__('os').getpid())); time.sleep(600)"
)


@pytest.mark.parametrize("structured", [{"status": "ok"}, {"status": "ok", "message": "3 files"}])
def test_a_foreign_status_does_not_hide_the_foreign_text(structured):
    found = read_outcome(("a.txt, b.txt",), structured, server="files")
    assert [snippet.text for snippet in found.snippets] == ["a.txt, b.txt"]
    failed = read_outcome(("no such folder",), structured, is_error=True, server="files")
    assert (failed.status, failed.message) == (ToolStatus.ERROR, "files says: no such folder")


async def test_a_child_that_never_shakes_hands_is_ended(tmp_path):
    opener = partial(open_stdio, sys.executable, ("-c", SILENT, str(tmp_path / "pid")), timeout=60)
    link = McpLink("silent", opener, timing=Timing.real(0), connect_timeout=1.0, attempts=1)
    with pytest.raises(ToolError, match="silent does not answer"):
        await link.list_tools()
    await link.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}
