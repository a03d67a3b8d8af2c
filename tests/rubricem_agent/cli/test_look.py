"""`rubricem demo` plays one episode with and without MCP; `rubricem view` serves runs until an interrupt."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_agent.config import HASHING, BankConfig
from rubricem_agent.wiring.memory import build_bank
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.testing.loopback import HOST
from tests.fakes import make_reflection

RUN = Path(__file__).parents[2] / "samples" / "viewer_run"
DEMO = "from rubricem_agent.cli.main import main; main()"
WITHOUT_MCP = f"import sys; sys.modules['mcp'] = None; {DEMO}"


def play(code: str, cwd) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", code, "demo"]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120, check=True)


def test_the_demo_goes_over_mcp_and_without_mcp_says_so_and_plays_the_same_episode(tmp_path):
    over_mcp = play(DEMO, tmp_path)
    record = (tmp_path / "runs/demo/trajectory.json").read_bytes()
    without = play(WITHOUT_MCP, tmp_path)
    assert over_mcp.stderr == ""
    assert "pip install 'rubricem[tools]'" in without.stderr
    assert over_mcp.stdout == without.stdout
    assert (tmp_path / "runs/demo/trajectory.json").read_bytes() == record
    assert "4 turns, 3 searches, 3 snippets cited." in over_mcp.stdout


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("folder", r"--out is .*folder, a folder; give the path of a file, such as .*folder/trajectory\.json\."),
        ("file/x.json", r"cannot write to .*file: File exists\. Choose another folder with --out"),
        ("file/deep/x.json", r"cannot write to .*file/deep: Not a directory\. Choose another folder with --out"),
    ],
)
def test_the_demo_says_at_once_that_its_file_cannot_be_written(tmp_path, out, said):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x", encoding="utf-8")

    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / out)])

    assert isinstance(result.exception, ConfigError)
    assert re.match(said, str(result.exception))
    assert result.output == ""


def test_a_folder_that_is_not_there_and_a_taken_port_are_refused(tmp_path):
    with socket.create_server((HOST, 0)) as holder:
        taken = CliRunner().invoke(app, ["view", str(RUN), "--port", str(holder.getsockname()[1])])

    assert isinstance(CliRunner().invoke(app, ["view", str(tmp_path / "none")]).exception, FileFormatError)
    typo = CliRunner().invoke(app, ["view", str(RUN), "--bank", str(tmp_path / "typo")])
    assert re.match("there is no rubric bank in .*typo", str(typo.exception))
    assert isinstance(taken.exception, ConfigError)
    assert "--port" in str(taken.exception)


def interrupt(process):
    """Press Ctrl-C once; what it still printed."""
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=30)


def test_a_run_and_a_bank_on_disk_are_served_to_whoever_has_the_printed_address_until_an_interrupt(tmp_path):
    pytest.importorskip("chromadb", reason="the extra `bank` is not installed")
    bank = build_bank(BankConfig(folder=tmp_path / "bank", embedder=HASHING))
    bank.write(make_reflection("Which river is wider?"))
    command = [sys.executable, "-m", "rubricem_agent.cli.main", "view", str(RUN), "--bank", str(tmp_path / "bank")]
    with subprocess.Popen(
        [*command, "--json", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        address, _, token = json.loads(process.stdout.readline())["url"].partition("/#token=")
        with httpx2.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
            (run,) = client.get("/api/runs").json()["runs"]
            found = client.get(f"/api/runs/{run['id']}/bank/search", params={"text": "a river"}).json()["rows"]
            changed = client.post(f"/api/runs/{run['id']}/bank/1", json={"action": "remove", "reason": "wrong"})
        refused = httpx2.get(f"{address}/api/runs", timeout=60)
        errors = interrupt(process)[1]

    assert address.startswith(f"http://{HOST}:")
    assert run["recorded"] == 32
    assert refused.status_code == 401
    assert (process.returncode, errors) == (0, "")
    assert [row["id"] for row in found] == [1]
    assert changed.json()["row"]["status"] == "removed"
    assert bank.item(1).reason == "wrong"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [([], "Showing"), (["--quiet"], "http://"), (["--json"], '{"url": "http://'), (["--open"], "no browser")],
)
def test_the_address_is_said_in_the_form_that_is_asked_for(arguments, said):
    # Without a display and with a browser that is none, --open has nothing to open.
    environment = os.environ | {"BROWSER": "/bin/false %s", "DISPLAY": ""}
    command = [sys.executable, "-m", "rubricem_agent.cli.main", "view", str(RUN), "--port", "0", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        lines = [process.stdout.readline()]
        while said not in lines[-1] and lines[-1]:
            lines.append(process.stdout.readline())
        interrupt(process)

    assert said in lines[-1]
