"""`rubricem view` serves runs until an interrupt."""

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
from rubricem_agent.config.bank import HASHING, BankConfig
from rubricem_agent.wiring.memory import build_bank
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.testing.loopback import HOST
from tests.fakes import make_reflection

RUN = Path(__file__).parents[2] / "samples" / "viewer_run"


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
