"""No function takes more than twelve values."""

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.no_cover

ROOT = Path(__file__).parents[1]
MOST = 12
FILES = [
    path
    for folder in ("rubricem_env", "rubricem_agent", "rubricem_records", "rubricem_viewer", "trainers", "tests")
    for path in (ROOT / folder).rglob("*.py")
]


def overlong_signatures(tree: ast.AST) -> list[str]:
    """The functions with more parameters than that; `self` and `cls` are none, nor are *args and **kwargs."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = sum(one.arg not in ("self", "cls") for one in given)
            if count > MOST:
                found.append(f"{node.name} takes {count}")
    return found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(a, b, c, d, *, e, f, g, h, i, j, k, l): ...", []),
        ("class A:\n    async def f(self, a, b, c, d, *, e, f, g, h, i, j, k, l, m): ...", ["f takes 13"]),
    ],
    ids=["twelve", "thirteen"],
)
def test_thirteen_parameters_are_too_many(source, found):
    assert overlong_signatures(ast.parse(source)) == found


def test_no_function_takes_more_than_twelve_values():
    wide = {
        str(path.relative_to(ROOT)): found
        for path in FILES
        if (found := overlong_signatures(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert wide == {}, "too many parameters: give those that travel together a type"
