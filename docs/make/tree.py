"""Writes the tree of the repository into README.md, AGENTS.md and docs/architecture.md; `make docs-reference` calls it.

A line is the first sentence of a module's or a package's docstring. README and AGENTS list folders, the architecture
page lists modules. The text between the markers `BEGIN` and `END` of a page is made here.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("rubricem_env", "rubricem_records", "rubricem_viewer", "rubricem_agent", "trainers", "examples", "research")
"""In the order of the layers; one that does not exist is left out."""
PLAIN_FOLDERS = {
    "examples": "Programs to read first; ssgrpo.py is the whole algorithm in one file.",
    "configs": "Settings of runs; the defaults are the paper's.",
    "tests": "Tests; they mirror the packages.",
    "docs": "Pages for users; docs/log has measurements of the development.",
    "ci": "Installation, and the slower checks: lanes/NAME with recipe and lock.",
}
"""Folders whose line is no docstring."""
BEGIN = "<!-- The tree is made by docs/make/tree.py; `make docs-reference` regenerates it. -->"
END = "<!-- End of the tree. -->"
LONGEST = 90
"""Characters of a line's text."""


def render(page: Path) -> str:
    """The page with its tree made anew."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    tree = modules() if page.name == "architecture.md" else folders()
    return f"{before}{BEGIN}\n```text\n{tree}\n```\n{END}{after}"


def pages() -> list[Path]:
    """The pages that have a tree."""
    return [ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "docs" / "architecture.md"]


def folders() -> str:
    """A line for each package and for each folder in it."""
    rows: list[tuple[str, str]] = []
    for name in PACKAGES:
        rows += [(indented(folder), summary(folder)) for folder in package_folders(ROOT / name)]
    rows += [(f"{name}/", shortened(text)) for name, text in PLAIN_FOLDERS.items() if name not in PACKAGES]
    return aligned(rows)


def modules() -> str:
    """A line for each package, folder and module."""
    rows: list[tuple[str, str]] = []
    for name in PACKAGES:
        for folder in package_folders(ROOT / name):
            rows.append((indented(folder), summary(folder)))
            files = sorted(path for path in folder.glob("*.py") if not path.name.startswith("__"))
            depth = len(folder.relative_to(ROOT).parts)
            rows += [("  " * depth + path.stem, first_sentence(path)) for path in files]
    return aligned(rows)


def package_folders(package: Path) -> list[Path]:
    """A package and the folders below it that have modules, in alphabetical order."""
    below = {path.parent for path in package.rglob("*.py")}
    return sorted(below | {package}) if below else []


def indented(folder: Path) -> str:
    """A folder's name, indented by its depth."""
    return "  " * (len(folder.relative_to(ROOT).parts) - 1) + f"{folder.name}/"


def summary(folder: Path) -> str:
    """What a folder holds."""
    text = PLAIN_FOLDERS.get(folder.relative_to(ROOT).as_posix())
    start = folder / "__init__.py"
    if text is not None:
        return shortened(text)
    return first_sentence(start) if start.exists() else ""


def first_sentence(path: Path) -> str:
    """The first line of a module's docstring, shortened."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return shortened(text.partition("\n")[0])


def shortened(text: str) -> str:
    """The first sentence without its full stop; a long one ends at its last comma, colon or bracket that fits."""
    sentence = re.split(r"(?<=\.) (?=[A-Z`])", text.strip())[0].rstrip(".")
    if len(sentence) <= LONGEST:
        return sentence
    ends = [match.start() for match in re.finditer(r"[,;:] | \(", sentence) if match.start() <= LONGEST]
    return sentence[: ends[-1]] if ends else sentence


def aligned(rows: list[tuple[str, str]]) -> str:
    """Names on the left, texts in one column."""
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(f"{name:<{width}}{text}".rstrip() for name, text in rows)


if __name__ == "__main__":
    for page in pages():
        page.write_text(render(page), encoding="utf-8")
