"""Says which test files can notice a change of a module, the nearest first, by what imports what."""

import ast
from collections import defaultdict, deque
from functools import cache
from pathlib import Path

from tests.conftest import SLOW

ALWAYS = (Path("tests/test_defaults.py"),)
"""Reads the sources, so that no import leads to it."""
PACKAGES = ("docs", "rubricem_env", "rubricem_records", "rubricem_viewer", "rubricem_agent", "trainers", "research")
NOT_RUN = ("lanes", "bench", "adapters", "fixtures", "samples", "examples")
"""Folders of tests/ with environments of their own, and what holds no tests."""


class Reach:
    """The imports of a tree, read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files = {
            _module_name(path.relative_to(root)): path
            for folder in (*PACKAGES, "tests")
            for path in sorted((root / folder).rglob("*.py"))
        }
        self._importers: dict[str, set[str]] = defaultdict(set)
        for name, path in self._files.items():
            for imported in self._imports(path):
                self._importers[imported].add(name)

    def tests_of(self, module: Path) -> list[list[Path]]:
        """By distance: those that import the module or have its name, then those that import its importers, and on."""
        start = _module_name(module)
        distances, queue = {start: 0}, deque([start])
        while queue:
            name = queue.popleft()
            for importer in sorted(self._importers[name]):
                if importer not in distances:
                    distances[importer] = distances[name] + 1
                    queue.append(importer)
        waves: dict[int, list[Path]] = defaultdict(list)
        for name, path in self._files.items():
            relative = path.relative_to(self._root)
            if path.name.startswith("test_") and len(relative.parts) > 2 and relative.parts[1] not in NOT_RUN:
                distance = self._distance(relative, module, distances.get(name))
                if distance is not None:
                    waves[distance].append(relative)
        near = [sorted(waves[distance], key=lambda path: self._rank(path, module)) for distance in sorted(waves)]
        return [list(ALWAYS), *(wave for wave in near if wave)]

    def _distance(self, test: Path, module: Path, imported: int | None) -> int | None:
        """Counted from 1; a test in the folder that mirrors the module's is near even if it imports another name."""
        if test.stem.startswith(f"test_{module.stem}"):
            return 1
        if test.parent == Path("tests") / module.parent:
            return min(2, imported or 2)
        return imported

    def _rank(self, test: Path, module: Path) -> tuple[bool, bool, bool, int]:
        """By name, then whether it is slow, then by folder, then by size."""
        is_mirrored = Path("tests") / module.parent in test.parents
        is_other = not test.stem.startswith(f"test_{module.stem}")
        return is_other, test.name in SLOW, not is_mirrored, (self._root / test).stat().st_size

    def _imports(self, path: Path) -> set[str]:
        found = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name for alias in node.names for name in self._known(alias.name)}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                for alias in node.names:
                    found |= self._known(f"{node.module}.{alias.name}") or self._known(node.module)
                    found |= self._public(node.module, alias.name)
        return found

    def _known(self, name: str) -> set[str]:
        """The installed name of the trainers is another than their folder's."""
        name = name.replace("rubricem_trainers", "trainers", 1)
        return {name} if name in self._files else set()

    def _public(self, package: str, name: str) -> set[str]:
        """The module behind a public name of a package, which its __init__.pyi lists."""
        stub = self._root / package.replace("rubricem_trainers", "trainers", 1).replace(".", "/") / "__init__.pyi"
        return _names_of(stub).get(name, set()) & set(self._files) if stub.is_file() else set()


@cache
def _names_of(stub: Path) -> dict[str, set[str]]:
    names: dict[str, set[str]] = defaultdict(set)
    for node in ast.walk(ast.parse(stub.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name].add(node.module)
    return names


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
