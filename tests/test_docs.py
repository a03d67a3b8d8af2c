"""Every Python block of the README and the docs runs as it stands, and links point at something."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#]+)")


def blocks():
    for page in PAGES:
        for number, found in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")), 1):
            yield pytest.param(found[1], id=f"{page.relative_to(ROOT)}-{number}")


@pytest.mark.parametrize("code", list(blocks()))
def test_a_code_block_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "block", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_point_at_something(page):
    targets = [page.parent / target for target in LINK.findall(page.read_text(encoding="utf-8"))]
    assert [str(target) for target in targets if not target.exists()] == []
