"""The ends of each range are what the lanes have installed and tested, and each extra has a room there."""

import json
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.lanes.newest.lane import RESOLUTIONS, Allowed, Outcome, reason_for, requirements

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "ci" / "lanes" / "newest"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {extra: lines for extra, lines in PROJECT["optional-dependencies"].items() if extra != "dev"}
ROOMS = tomllib.loads((FOLDER / "rooms.toml").read_text(encoding="utf-8"))
TESTED = json.loads((FOLDER / "tested.json").read_text(encoding="utf-8"))
RUNS = {(extra, which): run["versions"] for extra, both in TESTED.items() for which, run in both.items()}
OPEN: set[tuple[str, str]] = set()
"""Runs that nobody has made yet; the page says "not tested"."""
BY_HAND = {"torch"}
"""The lanes install one release of it, the CPU's; by_hand.md says what else was tried."""


def named(extra):
    """What the extra names itself; the core is tested by the first."""
    asked = [Requirement(line) for line in (PROJECT["dependencies"] if extra == "gym" else EXTRAS[extra])]
    return [one for one in asked if one.name not in {"rubricem", *BY_HAND}]


def test_every_extra_is_installed_alone_by_the_lanes():
    assert set(ROOMS) == set(EXTRAS), "give the extra a room in ci/lanes/newest/rooms.toml"
    missing = {(extra, which) for extra in EXTRAS for which in RESOLUTIONS} - set(RUNS)
    assert missing == OPEN, "run make newest-lane or make lowest-lane with EXTRAS=... WRITE=1"


@pytest.mark.parametrize("extra", ROOMS)
def test_what_a_room_runs_is_there(extra):
    assert [path for path in ROOMS[extra]["tests"] if not path.startswith("--") and not (ROOT / path).exists()] == []


@pytest.mark.parametrize("extra", [extra for extra, which in RUNS if which == "lowest"])
def test_the_lower_end_of_each_range_is_a_release_that_was_tested(extra):
    versions = RUNS[extra, "lowest"]
    for asked in named(extra):
        (lower,) = [one.version for one in asked.specifier if one.operator in {">=", "=="}]
        assert Version(versions[canonicalize_name(asked.name)]) == Version(lower), f"{asked} of {extra}"


@pytest.mark.parametrize("extra", [extra for extra, which in RUNS if which == "newest"])
def test_the_newest_release_that_was_tested_is_in_its_range(extra):
    versions = RUNS[extra, "newest"]
    for asked in named(extra):
        assert asked.specifier.contains(versions[canonicalize_name(asked.name)]), f"{asked} of {extra}"


def test_the_requirements_of_an_extra_inside_another_are_its_own():
    assert {"torch", "transformers", "accelerate", "pydantic"} <= {asked.name for asked in requirements("cluster")}


ROWS = [Allowed("trl", "trl", "1.18.0", "its submodules moved")]


@pytest.mark.parametrize(
    ("extra", "versions", "reason"),
    [
        ("trl", {"trl": "1.18.0"}, "its submodules moved"),
        ("trl", {"trl": "1.18.1"}, ""),  # another release
        ("skyrl", {"trl": "1.18.0"}, ""),  # another extra
        ("trl", {}, ""),  # not even installed
    ],
)
def test_only_the_release_that_a_row_names_may_fail(extra, versions, reason):
    assert reason_for(Outcome(extra, versions, "pytest: 1 failed", 1.0), ROWS) == reason
