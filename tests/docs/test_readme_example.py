"""The README quotes examples/own_loop.py and what it prints."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "own_loop.py"
SECTION = (
    (ROOT / "README.md").read_text(encoding="utf-8").split("## The environment in your own loop")[1].split("\n## ")[0]
)


def test_the_core_of_the_loop_is_that_of_the_example():
    (quoted,) = re.findall(r"^```py\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    assert textwrap.indent(quoted, "    ") in PROGRAM.read_text(encoding="utf-8")


def test_the_example_prints_what_the_readme_says():
    (quoted,) = re.findall(r"^```text\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    printed = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=True).stdout
    assert printed == quoted
