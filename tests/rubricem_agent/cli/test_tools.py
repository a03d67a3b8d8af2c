"""`rubricem tools` as its users meet it: by hand, as a subprocess, and killed under load."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import httpx2
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from rubricem_agent.cli.tools import tools_app
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.trajectory import ToolCall, ToolStatus
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.testing.loopback import free_port
from rubricem_env.tools.mcp_client import McpLink, McpToolbox
from rubricem_env.tools.mcp_session import open_http

TOKEN = "sesame-sesame-sesame"
CALL = ToolCall(name="google_search", query="Tall Fox width")


def run(*arguments: str):
    return CliRunner().invoke(tools_app, list(arguments))


def test_call_prints_what_a_policy_would_get_and_what_was_repaired():
    assert "Tall Fox has width 60 m." in run("call", "google_search", "Tall Fox width").output
    result = json.loads(run("call", "Scholar_Search", "river", "-p", "numResults=1", "--json").output)
    assert result["status"] == "ok"
    assert result["executed"]["written_name"] == "Scholar_Search"


def test_a_failed_call_is_one_sentence_and_exit_code_1():
    printed = run("call", "google_search", " ")
    assert printed.exit_code == 1
    assert printed.output.startswith("error: the call has no query;")
    mistake = run("call", "google_search", "x", "-p", "limit").exception
    assert isinstance(mistake, ConfigError)
    assert "write KEY=VALUE, such as --param limit=3" in str(mistake)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gogle", "there is no tool 'gogle'; the tools are google_search, snippet_search. Did you mean google_search?"),
        ("google_serch", "Did you mean google_search?"),
        ("snipet", "Did you mean snippet_search?"),
        ("xyz", "Call one of these."),
    ],
)
def test_a_name_that_a_policy_would_be_forgiven_is_refused_with_the_nearest_one(name, said):
    mistake = run("call", name, "x").exception
    assert isinstance(mistake, UsageError)
    assert str(mistake).endswith(said)


def test_a_server_that_is_not_there_is_named():
    mistake = run("call", "google_search", "x", "--url", f"http://127.0.0.1:{free_port()}/mcp").exception
    assert isinstance(mistake, ConfigError)
    assert "ConnectError" in str(mistake)
    assert "Is it running? Start one with `rubricem tools serve --transport http`." in str(mistake)
    assert "RUBRICEM_TOOLS_TOKEN" not in str(mistake)


class ServerProcess:
    """`rubricem tools serve --transport http` as a child."""

    def __init__(self, port: int) -> None:
        self.port = port
        command = "from rubricem_agent.cli.tools import tools_app; tools_app()"
        arguments = ["serve", "--transport", "http", "--port", str(port)]
        environment = {**os.environ, "RUBRICEM_TOOLS_TOKEN": TOKEN}
        self.process = subprocess.Popen(
            [sys.executable, "-c", command, *arguments], env=environment, stderr=subprocess.PIPE, text=True
        )

    def wait_until_ready(self) -> None:
        ends = time.monotonic() + 30
        while time.monotonic() < ends:
            try:
                if httpx2.get(f"http://127.0.0.1:{self.port}/ready").status_code == 200:
                    return
            except httpx2.TransportError:
                time.sleep(0.05)
        raise AssertionError("the server did not become ready")

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        self.process.communicate(timeout=20)
        return self.process.returncode


@pytest.fixture
def server():
    process = ServerProcess(free_port())
    process.wait_until_ready()
    yield process
    if process.process.poll() is None:
        process.end(signal.SIGKILL)


def link_to(port: int) -> McpLink:
    opener = partial(open_http, f"http://127.0.0.1:{port}/mcp", SecretStr(TOKEN))
    return McpLink("rubricem", opener, timing=Timing.real(0), attempts=30, total=60.0)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_the_server_shuts_down_cleanly(server, how):
    server.process.send_signal(how)
    _, errors = server.process.communicate(timeout=20)
    assert "Traceback" not in errors
    assert server.process.returncode in (0, -how, 128 + how)


@pytest.mark.no_cover
async def test_every_call_survives_a_server_that_is_killed_and_restarted_under_load(server):
    remote = await McpToolbox.connect(link_to(server.port))
    statuses: list[ToolStatus] = []

    async def episode() -> None:
        for _ in range(20):
            statuses.append((await remote.call(CALL)).status)

    episodes = [asyncio.create_task(episode()) for _ in range(16)]
    async with asyncio.timeout(30):
        while len(statuses) < 40:
            await asyncio.sleep(0)
    assert len(statuses) < 320
    server.end(signal.SIGKILL)
    second = ServerProcess(server.port)
    try:
        await asyncio.gather(*episodes)
        await remote.aclose()
    finally:
        second.end(signal.SIGKILL)
    assert statuses == [ToolStatus.OK] * 320


def test_a_call_needs_the_path_and_the_token_of_the_server_and_a_taken_port_is_explained(server, monkeypatch):
    def call(path, token):
        monkeypatch.setenv("RUBRICEM_TOOLS_TOKEN", token)
        return run("call", "google_search", "Tall Fox width", "--url", f"http://127.0.0.1:{server.port}{path}")

    assert "Tall Fox has width 60 m." in call("/mcp", TOKEN).output
    assert "Tall Fox has width 60 m." in call(f"/mcp,http://127.0.0.1:{free_port()}/mcp", TOKEN).output
    for path, token, said in (
        ("/mcp", "", "RUBRICEM_TOOLS_TOKEN is not set; set it to the token"),
        ("/mcp", "another-token", "RUBRICEM_TOOLS_TOKEN is set; its value must be the token"),
        ("", TOKEN, f"answers at /mcp; the address would be http://127.0.0.1:{server.port}/mcp. "),
    ):
        mistake = call(path, token).exception
        assert isinstance(mistake, ConfigError)
        assert f"the tool server http://127.0.0.1:{server.port}{path} does not work: it cannot be reached: " in str(
            mistake
        )
        assert said in str(mistake)
    taken = run("serve", "--transport", "http", "--port", str(server.port)).exception
    assert isinstance(taken, ConfigError)
    assert "Choose another --port" in str(taken)
