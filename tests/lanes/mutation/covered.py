"""Says which tests run a line, from a record of one run of every test; `python -m tests.lanes.mutation.covered FILE`.

The record is made once, takes as long as the tests, and grows file by file, so that it can be used before it is whole.
A module that has changed since then is looked up by its imports again (reach.py).
"""

import ast
import hashlib
import json
import os
import sys
import time
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import coverage
import pytest

from tests.conftest import SLOW
from tests.lanes.mutation.children import QUIET, preload
from tests.lanes.mutation.reach import NOT_RUN, PACKAGES

ROOT = Path(__file__).parents[3]
FILES_AT_ONCE = 10
"""So many share a process, which imports everything anew."""


class Covered:
    """The tests of each line, the fastest first."""

    def __init__(self, record: Path) -> None:
        self._tests: dict[str, dict[int, list[tuple[float, str]]]] = defaultdict(lambda: defaultdict(list))
        self._digests: dict[str, str] = {}
        for line in record.read_text(encoding="utf-8").splitlines():
            file = json.loads(line)
            for module, digest in file["digests"].items():
                self._digests.setdefault(module, digest)
                for test, lines in file["lines"].get(module, {}).items():
                    for number in lines:
                        self._tests[module][number].append((file["seconds"][test], test))

    def tests_of(self, module: Path, line: int) -> list[str] | None:
        """The tests that run the statement at this line; None if the module has changed since the record."""
        source = (ROOT / module).read_text(encoding="utf-8")
        if self._digests.get(str(module)) != _digest(source):
            return None
        lines = self._tests[str(module)]
        found = {entry for number in _statement(source, line) for entry in lines.get(number, ())}
        return [test for _, test in sorted(found)]


@cache
def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]


@cache
def _statement(source: str, line: int) -> range:
    """The lines of the smallest statement around a line; of one with a body, those before the body."""
    best = range(line, line + 1)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= node.end_lineno:
            body = getattr(node, "body", None)
            end = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
            if line <= end:
                best = range(node.lineno, end + 1)
    return best


class _PerTest:
    """Switches the context of the coverage at each test, and measures its time."""

    def __init__(self, running: coverage.Coverage) -> None:
        self._running = running
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._running.switch_context(item.nodeid)
        begun = time.monotonic()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = round(time.monotonic() - begun, 2)


def _record(tests: list[Path], record: Path) -> NoReturn:
    try:
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        running = coverage.Coverage(data_file=None, config_file=False, source=list(PACKAGES))
        running.start()
        per_test = _PerTest(running)
        pytest.main(["-q", *QUIET, *map(str, tests)], plugins=[per_test])
        running.stop()
        measured = running.get_data()
        digests, found = {}, {}
        for name in measured.measured_files():
            module = str(Path(name).relative_to(ROOT))
            digests[module] = _digest(Path(name).read_text(encoding="utf-8"))
            by_test = defaultdict(list)
            for line, tests in measured.contexts_by_lineno(name).items():
                for nodeid in filter(None, tests):
                    by_test[nodeid].append(line)
            found[module] = by_test
        entry = {"tests": [*map(str, tests)], "seconds": per_test.seconds, "digests": digests, "lines": found}
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
    finally:
        os._exit(0)


def _order(test: Path) -> tuple[bool, bool, int]:
    """The tests of the core first, slow files last."""
    is_core = (
        test.parts[1] in ("rubricem_env", "rubricem_agent", "rubricem_records", "trainers") and "cli" not in test.parts
    )
    return test.name in SLOW, not is_core, (ROOT / test).stat().st_size


def main() -> None:
    """Records the test files that the record has not."""
    record = Path(sys.argv[1]).resolve()
    known = (
        {test for line in record.read_text(encoding="utf-8").splitlines() for test in json.loads(line)["tests"]}
        if record.exists()
        else set()
    )
    tests = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    tests = [path for path in tests if path.parts[1] not in NOT_RUN and str(path) not in known]
    preload()
    os.chdir(ROOT)
    tests.sort(key=_order)
    for first in range(0, len(tests), FILES_AT_ONCE):
        begun = time.monotonic()
        pid = os.fork()
        if pid == 0:
            _record(tests[first : first + FILES_AT_ONCE], record)
        os.waitpid(pid, 0)
        sys.stdout.write(f"{time.monotonic() - begun:4.0f} s  {first + FILES_AT_ONCE} of {len(tests)} files\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
