"""The stubs that the recipes are checked with say what the packages hold; RUBRICEM_PUBLISHED is a folder of these."""

import ast
import json
import os
from pathlib import Path

import pytest

PUBLISHED = Path(__file__).parents[1] / "published"
SOURCES = json.loads((PUBLISHED / "sources.json").read_text(encoding="utf-8"))
FOLDER = os.environ.get("RUBRICEM_PUBLISHED", "")


def signatures(tree):
    """Each field and function by its name, with all that a caller sees of it; docstrings and bodies are left out."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = [ast.unparse(base) for base in node.bases]
            found |= {f"{node.name}.{name}": shape for name, shape in signatures(node).items()}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            returns = node.returns and ast.unparse(node.returns)
            found[node.name] = (type(node).__name__, ast.unparse(node.args), returns)
        elif isinstance(node, ast.AnnAssign):
            found[ast.unparse(node.target)] = (ast.unparse(node.annotation), node.value and ast.unparse(node.value))
    return found


def read(path):
    return signatures(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("module", SOURCES)
def test_a_stub_says_what_its_source_says(module):
    source = Path(FOLDER) / f"{module}.py"
    if not FOLDER or not source.is_file():
        pytest.skip(f"{SOURCES[module]} is not in RUBRICEM_PUBLISHED; make adapter-recipes fetches what the index has")
    stub, real = read(PUBLISHED / f"{module}.pyi"), read(source)
    # A private constant stands in for a value that no caller sees.
    public = {name: shape for name, shape in stub.items() if not name.startswith("_")}
    assert len(public) > 3
    assert public == {name: real.get(name) for name in public}
