"""Writes docs/reference/names.md, the list of public names: `python -m docs.make.names`."""

import ast
from pathlib import Path

from rubricem_env.exports import exported_names

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "names.md"
HEAD = """# Public names

Import these from their package, for example `from rubricem_env.judge import RulesJudge`. Modules below the packages may
move between releases; these names stay. `python -m docs.make.names` writes this page from the packages' stubs.
"""


def page_text() -> str:
    """The page: a section for each package, a row for each name with the first sentence of its docstring."""
    sections = [HEAD]
    for package in ("rubricem_env", "rubricem_agent", "rubricem_records", "rubricem_viewer", "trainers"):
        for stub in sorted((ROOT / package).rglob("__init__.pyi")):
            title = ".".join(stub.parent.relative_to(ROOT).parts)
            names = exported_names(stub, title)
            rows = [f"| `{name}` | {_first_sentence(names[name], name)} |" for name in sorted(names, key=str.lower)]
            sections.append("\n".join([f"## {title}\n", "| name | what it is |", "|---|---|", *rows, ""]))
    return "\n".join(sections)


def _first_sentence(module: str, name: str) -> str:
    """Of the docstring of a class or function, or of the string below a constant; the source is read, not imported."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    body = ast.parse(path.read_text(encoding="utf-8")).body
    text = ""
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            text = ast.get_docstring(node) or ""
        elif isinstance(node, ast.Assign | ast.AnnAssign) and name in _targets(node):
            is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            text = str(following.value.value) if is_text else ""
    return text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|").strip()


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


if __name__ == "__main__":
    PAGE.write_text(page_text(), encoding="utf-8")
