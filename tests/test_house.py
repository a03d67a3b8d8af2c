"""The limits of the code base: size of files and folders, number of concepts, one name for one class."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.no_cover

ROOT = Path(__file__).parents[1]
PACKAGES = ("rubricem_env", "rubricem_agent", "trainers")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MODULES = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in FILES if path.name != "__init__.py"}
TREES = {path: ast.parse(text) for path, text in MODULES.items()}
READ = re.compile(r"\]\(([^)]+\.py)\)")
"""A linked module of the reading path."""
SMALL = {
    "rubricem_env/concurrency.py",
    "rubricem_env/exports.py",
    "rubricem_env/registration.py",
    "rubricem_agent/adapters/credit.py",
    "rubricem_agent/adapters/local_play.py",
    "rubricem_agent/adapters/trl.py",
    "trainers/local_ssgrpo.py",
    "trainers/sft.py",
    "trainers/sft_accelerate.py",
    "trainers/verl_ssgrpo.py",
    "trainers/verl_backend/plugin.py",
    "trainers/verl_backend/cpu/vllm.py",
}
"""Entry points, adapters, and modules apart for an optional dependency or for the cost of their import."""
SMALL_FOLDERS = {"rubricem_env", "rubricem_agent", "rubricem_agent/adapters", "rubricem_agent/reflection"}
"""The packages' own top level, the adapters with one file for each library, and a layer of two files."""


def lines(text: str) -> int:
    return text.count("\n")


def classes(tree: ast.AST) -> list[str]:
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def test_there_are_at_most_230_modules():
    assert len(MODULES) <= 230


def test_the_product_does_not_grow():
    assert sum(path.read_bytes().count(b"\n") for path in FILES) <= 50_000


def test_no_module_is_longer_than_600_lines_or_shorter_than_60():
    assert {str(path): lines(text) for path, text in MODULES.items() if lines(text) > 600} == {}
    assert {
        str(path): lines(text) for path, text in MODULES.items() if lines(text) < 60 and str(path) not in SMALL
    } == {}


def test_a_folder_has_4_to_16_modules():
    counts = Counter(str(path.parent) for path in MODULES)
    assert {name: count for name, count in counts.items() if count > 16} == {}
    assert {name: count for name, count in counts.items() if count < 4 and name not in SMALL_FOLDERS} == {}


def test_there_are_at_most_12_classes_in_1_000_lines():
    count = sum(len(classes(tree)) for tree in TREES.values())
    assert 1000 * count / sum(lines(text) for text in MODULES.values()) <= 12


def test_no_public_class_name_is_used_twice():
    counts = Counter(name for tree in TREES.values() for name in classes(tree) if not name.startswith("_"))
    assert [name for name, count in counts.items() if count > 1] == []


def test_no_function_is_longer_than_80_lines():
    long = {
        f"{path}:{node.name}": length
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := node.end_lineno - node.lineno + 1) > 80
    }
    assert long == {}


def test_the_reading_path_has_at_most_5_000_lines():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    path = page.split("## Reading path", 1)[1].split("## ", 1)[0]
    files = READ.findall(path)
    assert len(files) > 20
    assert sum(lines((ROOT / "docs" / name).resolve().read_text(encoding="utf-8")) for name in files) <= 5_000


def test_no_broad_except_stands_anywhere_since_boundary_converts_exceptions():
    broad = {
        str(path)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and (node.type is None or getattr(node.type, "id", "") == "Exception")
    }
    assert broad == set()
