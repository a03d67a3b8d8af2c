"""Every Python block of the README and the docs runs, console blocks print what they say, and links have targets."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROMPT = "$ "
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#]+)")


def blocks():
    for page in PAGES:
        for number, block in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")), 1):
            yield pytest.param(block[1], id=f"{page.relative_to(ROOT)}-{number}")


@pytest.mark.parametrize("code", list(blocks()))
def test_a_code_block_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "block", "exec"), {"__name__": "__main__"})


DEEP_IMPORT = re.compile(r"^\s*(?:from|import) ((?:rubricem_env|rubricem_agent|trainers)(?:\.\w+){2,})", re.MULTILINE)
PATCH = re.compile(r"^```diff\n.*?^```$", re.MULTILINE | re.DOTALL)
"""A change of the library itself."""


def test_pages_and_recipes_import_from_packages():
    recipes = (path for path in (ROOT / "docs" / "adapters").rglob("*") if path.suffix in (".py", ".md", ".txt"))
    deep = {
        str(path.relative_to(ROOT)): names
        for path in (*PAGES, *recipes)
        if (names := DEEP_IMPORT.findall(PATCH.sub("", path.read_text(encoding="utf-8"))))
    }
    assert deep == {}


def sessions():
    """Each page that has console blocks, with its commands and what they print, in their order."""
    for page in PAGES:
        text = "".join(CONSOLE.findall(page.read_text(encoding="utf-8")))
        if text:
            steps = [step.partition("\n") for step in re.split(rf"^{re.escape(PROMPT)}", text, flags=re.MULTILINE)[1:]]
            yield pytest.param([(command, expected) for command, _, expected in steps], id=str(page.relative_to(ROOT)))


@pytest.mark.parametrize("session", list(sessions()))
def test_the_commands_of_a_page_print_what_it_says(session, tmp_path):
    for command, expected in session:
        _, printed = run(Path(sys.executable).parent, command, tmp_path)
        assert fits(printed, expected), f"$ {command}\n{printed}"


def run(programs, command, folder):
    """Run a shell command in a folder, with these programs first and no settings of ours; its exit code and output."""
    environ = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    environ |= {name: os.environ[name] for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY") if name in os.environ}
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environ,
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout


def fits(printed: str, expected: str) -> bool:
    """Whether a page tells what was printed; a line of three dots stands for any lines, blanks at ends for nothing."""
    lines = [line.rstrip() for line in expected.strip("\n").split("\n")]
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"[ ]*\n" for line in lines)
    return re.fullmatch(pattern, printed.strip("\n") + "\n") is not None


def test_a_page_that_tells_something_else_is_found_out():
    assert fits("a\nb\nc\n", "a\n...\nc\n")
    assert not fits("a\nb\n", "a\nc\n")
    assert not fits("a\nb\n", "a\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_point_at_something(page):
    targets = [page.parent / target for target in LINK.findall(page.read_text(encoding="utf-8"))]
    assert [str(target) for target in targets if not target.exists()] == []
