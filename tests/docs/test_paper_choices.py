"""The page of choices names modules that exist."""

import re
from pathlib import Path
from statistics import fmean

import pytest

from rubricem_agent.prompting import AGENT_PROMPTS
from rubricem_env.judge.model.templates import SHIPPED_PROMPTS
from rubricem_records.evaluations.published_scores import published_tables

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


CODE = re.compile(r"\bchoices?:?\s+([A-E]\d{1,2})\b|\(([A-E]\d{1,2})\)|\b([A-E]\d{1,2})\)")
"""A choice by a letter and a number, as in "choice B7" or "(B7)"."""


def test_a_choice_that_the_code_names_by_a_code_is_on_the_page():
    roots = (
        "rubricem_env",
        "rubricem_agent",
        "rubricem_records",
        "rubricem_viewer",
        "trainers",
        "research",
        "examples",
    )
    files = [path for root in (*roots, "configs", "docs", "tests") for path in (ROOT / root).rglob("*")]
    texts = {
        path.relative_to(ROOT): path.read_text(encoding="utf-8")
        for path in files
        if path.suffix in (".py", ".md", ".yaml") and path != Path(__file__)
    }
    named = {
        (str(path), code) for path, text in texts.items() for found in CODE.findall(text) for code in found if code
    }
    assert {(path, code) for path, code in named if f"| {code} |" not in PAGE} == set()


def test_the_averages_of_table_2_are_those_printed_and_those_computed():
    (table,) = [table for table in published_tables(["SimpleQA"]) if table.source.endswith("Table 2")]
    listed = re.findall(r"^\| ([^|]+) \| (\d\d\.\d) \| (\d\d\.\d{3}) \|$", PAGE, re.MULTILINE)
    expected = [(row.system, f"{row.values[-1]:.1f}", f"{fmean(row.values[:-1]):.3f}") for row in table.rows]
    assert listed == expected


def test_every_prompt_stands_beside_what_the_paper_printed():
    section = PAGE.split("## Prompts")[1].split("\n## ")[0]
    names = [*AGENT_PROMPTS, *SHIPPED_PROMPTS.hashes, "teacher_first", "teacher_later"]
    assert [name for name in names if f"`{name}.md`" not in section] == []
