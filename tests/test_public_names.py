"""The public names: each package exports what its stub lists, and the reference page lists the same."""

from importlib import import_module
from pathlib import Path

import pytest

from docs.make.names import PAGE, page_text
from rubricem_env.exports import exported_names

ROOT = Path(__file__).parents[1]
STUBS = sorted(
    stub
    for package in ("rubricem_env", "rubricem_agent", "rubricem_records", "rubricem_viewer", "trainers")
    for stub in (ROOT / package).rglob("__init__.pyi")
)
NEEDS_A_LIBRARY = ("rubricem_env.adapters.", "rubricem_agent.adapters.")
"""Adapters import the library that they adapt to; each is tested in its own lane."""


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: str(stub.parent.relative_to(ROOT)))
def test_every_exported_name_can_be_imported(stub):
    package = import_module(".".join(stub.parent.relative_to(ROOT).parts))
    names = exported_names(stub, package.__name__)
    assert package.__all__ == sorted(names)
    for name, home in names.items():
        if not home.startswith(NEEDS_A_LIBRARY) or home.endswith((".session", ".credit")):
            assert getattr(package, name) is getattr(import_module(home), name)


def test_a_name_that_is_not_exported_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Juge'"):
        _ = import_module("rubricem_env.judge").Juge


def test_the_reference_page_lists_every_exported_name_and_no_other():
    assert PAGE.read_text(encoding="utf-8") == page_text(), "run: python -m docs.make.names"
