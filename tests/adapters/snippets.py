"""The lines that docs/adapters.md shows for each library, to be run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"


def snippet(library):
    """The first block of a library's section."""
    section = _PAGE.read_text(encoding="utf-8").partition(f"\n## {library}\n")[2].partition("\n## ")[0]
    return re.search(r"^```py\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[1]


def run_program(library, folder):
    """Run the whole program of a library's section, its second block, as a user does: alone, in an empty folder."""
    section = _PAGE.read_text(encoding="utf-8").partition(f"\n## {library}\n")[2].partition("\n## ")[0]
    program = re.findall(r"^```py\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[1]
    (folder / "program.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", "program.py"], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def statements(text):
    """The lines of a snippet without its imports, what is blank, and what only closes a bracket."""
    return [line for line in text.splitlines() if line.strip(" )") and not line.startswith(("import ", "from "))]


def run(text, **given):
    """Run a snippet with these names given; returns all its names."""
    names = {"__name__": "my_module", **given}
    exec(compile(text, "docs/adapters.md", "exec"), names)
    return names
