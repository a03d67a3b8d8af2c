"""Each patch of the page for contributors, applied to a copy of the repository as a contributor does, is green."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "contribute.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^## (A [^\n]*)\n.*?^```diff\n(.*?)^```.*?^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
PARTS = {title: (patch, commands.splitlines()) for title, patch, commands in SECTION.findall(PAGE)}
COPIED = ("rubricem_env", "rubricem_records", "rubricem_viewer", "rubricem_agent", "trainers", "tests", "docs")
WALLS = ("tests/test_house.py", "tests/test_layers.py", "tests/test_defaults.py")


def test_the_page_has_all_kinds_of_parts():
    assert set(PARTS) == {"A search engine", "A judge", "A benchmark", "A tool"}


@pytest.fixture
def copy(tmp_path):
    skipped = shutil.ignore_patterns("node_modules", "__pycache__", "lanes", "bench", "images")
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skipped)
    for name in ("research", "examples", "configs", "ci"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("pyproject.toml", "AGENTS.md", "README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("part", PARTS)
def test_who_follows_the_page_is_green(part, copy):
    patch, commands = PARTS[part]
    environment = os.environ | {"PYTHONPATH": str(copy), "GIT_CEILING_DIRECTORIES": str(copy.parent)}

    def run(*command, text=None):
        done = subprocess.run(
            command, cwd=copy, env=environment, input=text, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-2000:]}"

    run("git", "apply", "-C1", "-", text=patch)
    run(sys.executable, "-m", "tests.test_defaults")
    walls = f"python -m pytest -q {' '.join(WALLS)}"
    for command in (*commands, walls):
        run("sh", "-c", f"{command} -p no:cacheprovider".replace("python", sys.executable, 1))
