"""Each patch of the page for contributors applies to the repository; `make example-lane` follows the page."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "contribute.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^## (A [^\n]*)\n.*?^```diff\n(.*?)^```.*?^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
PARTS = {title: (patch, commands.splitlines()) for title, patch, commands in SECTION.findall(PAGE)}


def test_the_page_has_all_kinds_of_parts_and_each_patch_applies():
    assert set(PARTS) == {"A search engine", "A judge", "A benchmark", "A tool"}
    for patch, _ in PARTS.values():
        command = ["git", "apply", "--check", "-C1", "-"]
        done = subprocess.run(command, cwd=ROOT, input=patch, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
