"""Every default and threshold of the core is the number that was decided: a changed one shows here, not in a run.

`python -m tests.test_defaults` writes the file anew after a decision.
"""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = (
    "rubricem_agent/evals",
    "rubricem_agent/learn",
    "rubricem_agent/memory",
    "rubricem_agent/reflection",
    "rubricem_agent/rollout",
    "rubricem_env",
    "rubricem_records",
    "trainers/local",
)
DECIDED = Path(__file__).with_name("fixtures") / "defaults.json"
Numbers = dict[str, dict[str, str]]


def defaults_of(tree: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.expr]]:
    """The defaults of parameters and fields, and the constants of the module, by the name with its scope."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from defaults_of(node, f"{scope}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            positional = [*arguments.posonlyargs, *arguments.args]
            given = [*zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True)]
            given += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            yield from ((f"{scope}{node.name}({each.arg})", value) for each, value in given if value is not None)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield f"{scope}{ast.unparse(node.target)}", node.value
        elif isinstance(node, ast.Assign):
            yield f"{scope}{ast.unparse(node.targets[0])}", node.value


def numbers_in(value: ast.expr) -> str:
    """Its numbers and truth values in their order, also those of limits such as Field(ge=0) and of tables."""
    found = (node.value for node in ast.walk(value) if isinstance(node, ast.Constant))
    return " ".join(repr(number) for number in found if isinstance(number, int | float))


def numbers() -> Numbers:
    """By module and name, the numbers of every default and constant that has any."""
    found: Numbers = {}
    for path in sorted(path for folder in CORE for path in (ROOT / folder).rglob("*.py")):
        defaults = defaults_of(ast.parse(path.read_text(encoding="utf-8")))
        given = {name: numbers for name, value in defaults if (numbers := numbers_in(value))}
        if given:
            found[path.relative_to(ROOT).as_posix()] = given
    return found


def test_every_default_is_the_one_that_was_decided():
    assert numbers() == json.loads(DECIDED.read_text(encoding="utf-8")), (
        "a default has changed or is new: if that is decided, run `python -m tests.test_defaults`"
    )


if __name__ == "__main__":
    DECIDED.write_text(json.dumps(numbers(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
