"""Writes docs/reference/versions.md: the releases that each extra was tested with; `make docs-reference` calls it."""

import json
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "versions.md"
FOLDER = ROOT / "ci" / "lanes" / "newest"
CORE = "gym"
"""The extra that asks for nothing but what the core has."""
INTRODUCTION = """# Tested versions

<!-- Made by docs/make/versions.py from pyproject.toml and ci/lanes/newest; `make docs-reference` regenerates it. -->

Each extra was installed alone in a fresh environment: with the lowest releases that its ranges permit (`make
lowest-lane`), and with the newest on the package index (`make newest-lane`). Then the tests and the example of its part
were run. Python was {python}, the last day {day}. Both lanes run every night, and CI runs the newest of some extras.

| extra | package | permitted | lowest tested | newest tested |
|---|---|---|---|---|
"""


def render() -> str:
    """The whole page."""
    tested = json.loads((FOLDER / "tested.json").read_text(encoding="utf-8"))
    runs = [run for both in tested.values() for run in both.values()]
    introduction = INTRODUCTION.format(
        python=" and ".join(sorted({run["python"] for run in runs})), day=max(run["day"] for run in runs)
    )
    by_hand = (FOLDER / "by_hand.md").read_text(encoding="utf-8")
    return introduction + "\n".join([*rows(tested), "", *failures(), by_hand])


def rows(tested: dict[str, Any]) -> list[str]:
    """A row for each package that the core or an extra names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {"": project["dependencies"], **project["optional-dependencies"]}
    asked = [(extra, Requirement(line)) for extra, lines in extras.items() for line in lines]
    return [
        f"| {f'`{extra}`' if extra else 'none'} | {one.name} | {permitted(one)} | {releases(tested, extra, one.name)} |"
        for extra, one in asked
        if extra not in {CORE, "dev"} and one.name != "rubricem"
    ]


def releases(tested: dict[str, Any], extra: str, package: str) -> str:
    """The lowest and the newest, as two cells."""
    runs = [tested.get(extra or CORE, {}).get(which, {"versions": {}}) for which in ("lowest", "newest")]
    return " | ".join(run["versions"].get(canonicalize_name(package), "not tested") for run in runs)


def permitted(requirement: Requirement) -> str:
    """The range as a reader writes it, the lower end first."""
    return ", ".join(sorted(map(str, requirement.specifier), reverse=True)).replace("==", "")


def failures() -> list[str]:
    """What may fail in the lanes, with the release and the reason."""
    allowed = tomllib.loads((FOLDER / "allowed.toml").read_text(encoding="utf-8")).get("allowed", [])
    lines = [f"- `{row['extra']}` with {row['package']} {row['release']}: {row['reason']}" for row in allowed]
    return ["These fail, and may:", "", *lines, ""] if lines else ["No extra may fail.", ""]


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
