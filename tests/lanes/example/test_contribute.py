"""Each patch of the page for contributors, applied to a copy of the repository as a contributor does, is green."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.docs.test_contribute import PARTS, ROOT

COPIED = ("rubricem_env", "rubricem_records", "rubricem_viewer", "rubricem_agent", "trainers", "tests", "docs")
PYTEST = "python -m pytest -q "
WALLS = ("tests/test_house.py", "tests/test_layers.py", "tests/test_defaults.py")


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


def test_who_follows_the_page_is_green(copy):
    environment = os.environ | {"PYTHONPATH": str(copy), "GIT_CEILING_DIRECTORIES": str(copy.parent)}

    def run(*command, text=None):
        done = subprocess.run(
            command, cwd=copy, env=environment, input=text, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-2000:]}"

    for patch, _ in PARTS.values():
        run("git", "apply", "-C1", "-", text=patch)
    run(sys.executable, "-m", "tests.test_defaults")
    # All that the page says in one process, with the tests that guard the house.
    commands = [command for _, commands in PARTS.values() for command in commands]
    assert all(command.startswith(PYTEST) for command in commands)
    files = dict.fromkeys(file for command in commands for file in command.removeprefix(PYTEST).split())
    run(sys.executable, *PYTEST.split()[1:], "-p", "no:cacheprovider", *files, *WALLS)
