"""`rubricem demo` plays one episode with and without MCP."""

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_env.domain.errors import ConfigError

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
