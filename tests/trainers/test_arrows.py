"""What the trainers may import: veRL's nothing of the local one, and a GPU process nothing that only a CPU needs."""

import ast
from pathlib import Path

import pytest

from tests.test_layers import imports

TRAINERS = Path(__file__).parents[2] / "trainers"
BACKEND = sorted((TRAINERS / "verl_backend").rglob("*.py"))
CPU = "trainers.verl_backend.cpu"


def names_in(file: Path) -> set[str]:
    package = ".".join(file.parent.relative_to(TRAINERS.parent).parts)
    return set(imports(ast.parse(file.read_text(encoding="utf-8")), package))


@pytest.mark.parametrize("file", BACKEND, ids=lambda path: path.stem)
def test_the_verl_backend_imports_nothing_of_the_local_trainer_or_of_experiments(file):
    other = ("trainers.local", "research")
    assert [name for name in names_in(file) if name.startswith(other)] == []


def test_only_the_plugin_knows_the_modules_for_a_cpu_and_imports_none_of_them_at_once():
    outside = [file for file in BACKEND if file.parent.name != "cpu"]
    assert [file.name for file in outside if any(name.startswith(CPU) for name in names_in(file))] == []
    assert [file.name for file in outside if '"{__package__}.cpu.' in file.read_text(encoding="utf-8")] == ["plugin.py"]


def test_the_local_trainer_imports_nothing_of_the_verl_backend():
    local = (TRAINERS / "local").glob("*.py")
    assert [file.name for file in local if any(name.startswith("trainers.verl") for name in names_in(file))] == []
