"""The stage set of docs/howto/stages.md is sixty lines, and plays, is judged and trains as the page says."""

import re
from pathlib import Path

import pytest

from rubricem_env.domain.stage_set import read_stage_set

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "stages.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```(toml|markdown|py)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "stages.toml").write_text(BLOCKS["toml"], encoding="utf-8")
    (tmp_path / "claims" / "agent.md").write_text(BLOCKS["markdown"], encoding="utf-8")
    return tmp_path / "claims"


def test_the_set_is_sixty_lines_of_toml_and_markdown(folder):
    lines = [line for kind in ("toml", "markdown") for line in BLOCKS[kind].splitlines() if line.strip()]
    assert len(lines) <= 60
    assert read_stage_set(str(folder)).scaffold.names == ("read", "check", "verdict")


def test_the_program_of_the_page_runs(folder):
    exec(compile(BLOCKS["py"], "stages.md", "exec"), {"__name__": "__main__"})
