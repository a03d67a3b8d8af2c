"""`rubricem demo` with the tools extra and without it: one and the same episode."""

import subprocess
import sys

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
