"""Importing the environment stays cheap: nothing heavy comes with it."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "chromadb", "ray", "verl", "mcp", "google.genai", "httpx2", "typer")


@pytest.mark.parametrize(
    "module", ["rubricem_env", "rubricem_env.env", "rubricem_env.judge", "rubricem_agent.learn.credit"]
)
def test_importing_pulls_in_nothing_heavy(module):
    code = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_importing_the_package_brings_only_what_gymnasium_needs():
    code = (
        "import sys, gymnasium; before = set(sys.modules); "
        "import rubricem_env; print(sorted(set(sys.modules) - before))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "['rubricem_env', 'rubricem_env.registration']"


def test_the_command_line_starts_without_the_heavy_parts():
    code = f"import sys, rubricem_agent.cli.main; print([name for name in {HEAVY[:-1]!r} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
