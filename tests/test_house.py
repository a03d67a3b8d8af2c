"""The limits of the code base: the length of a file and of a function, one name for one class, no broad except."""

import ast
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.no_cover

ROOT = Path(__file__).parents[1]
PACKAGES = ("rubricem_env", "rubricem_agent", "rubricem_records", "rubricem_viewer", "trainers", "research")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MODULES = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in FILES if path.name != "__init__.py"}
TREES = {path: ast.parse(text) for path, text in MODULES.items()}


def lines(text: str) -> int:
    return text.count("\n")


def classes(tree: ast.AST) -> list[str]:
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def test_no_module_is_longer_than_600_lines():
    assert {str(path): lines(text) for path, text in MODULES.items() if lines(text) > 600} == {}, (
        "a file of more than 600 lines: move what changes for another reason into a file of its own"
    )


def test_no_public_class_name_is_used_twice():
    counts = Counter(name for tree in TREES.values() for name in classes(tree) if not name.startswith("_"))
    assert [name for name, count in counts.items() if count > 1] == [], (
        "a public class has the name of another one: name the new one after what it is there"
    )


def test_no_function_is_longer_than_80_lines():
    long = {
        f"{path}:{node.name}": length
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := node.end_lineno - node.lineno + 1) > 80
    }
    assert long == {}, "a function of more than 80 lines: give a part that has a name of its own a function"


def test_no_broad_except_stands_anywhere_since_boundary_converts_exceptions():
    broad = {
        str(path)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and (node.type is None or getattr(node.type, "id", "") == "Exception")
    }
    assert broad == set(), "a broad except: use `with boundary(SomeError, 'do something')`, or name the exceptions"
