"""The page of choices names modules that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "paper_choices.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("|")]
PLACES = sorted({place for row in ROWS for place in re.findall(r"`([a-z_/]+/[a-z_]+)`", row.rsplit("|", 2)[1])})


@pytest.mark.parametrize("place", PLACES)
def test_a_choice_is_in_a_module_of_that_name(place):
    homes = (ROOT, ROOT / "rubricem_env", ROOT / "rubricem_agent")
    assert any((home / f"{place}.py").is_file() or (home / place).is_dir() for home in homes)


def test_every_choice_has_three_columns():
    assert [row for row in ROWS if row.count("|") != 4] == []
