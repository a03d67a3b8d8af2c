"""Every string of the code, with `…` for what is filled in."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("rubricem_env", "rubricem_agent", "rubricem_records", "rubricem_viewer", "trainers")
GAP = "…"


def sentences() -> Iterator[str]:
    """The constants and f-strings of all packages."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = written(node)
                if text:
                    yield text


def written(node: ast.AST) -> str:
    """A string as it stands in the code; nothing for other nodes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else GAP for part in node.values)
    return ""
