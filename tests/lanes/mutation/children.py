"""Runs tests in forked processes that have the large libraries already, and none of this project's modules."""

import gc
import importlib
import os
import select
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

LIBRARIES = (
    "chromadb", "fastapi.testclient", "google.genai", "gymnasium", "httpx2", "mcp", "numpy", "pydantic",
    "rich.progress", "safetensors.torch", "scipy.stats", "tantivy", "torch", "transformers.models.qwen3",
    "typer", "uvicorn",
)  # fmt: skip
OURS = ("rubricem_", "trainers", "research", "tests", "examples", "docs")


class Outcome(NamedTuple):
    """What came of a mutant, and the first test that noticed it."""

    verdict: str
    """noticed, timeout, survived, or stillborn (the module cannot be imported)."""
    test: str


def preload() -> None:
    """Imports what takes seconds, once for all children."""
    for name in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


class _FirstFailure:
    """Tells the parent which test failed, or which file could not be collected."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._tell(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._tell(report.nodeid)

    def _tell(self, nodeid: str) -> None:
        os.write(self._pipe, f"{nodeid}\n".encode())


def run_tests(
    folder: Path, module: Path, files: Collection[Path | str], seconds: float, failing: Collection[str]
) -> Outcome:
    """The outcome of these files, or of one test, in this copy of the tree."""
    if not files:
        return Outcome("survived", "")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _be_tests(folder, module, [str(file) for file in files], failing, writing)
    os.close(writing)
    told, is_over = _read(reading, time.monotonic() + seconds)
    if is_over:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _end_group(pid)
    if not is_over:
        os.waitpid(pid, 0)
        return Outcome("timeout", "")
    if code == STILLBORN:
        return Outcome("stillborn", "")
    # Exit 5: nothing was collected, since what fails anyway was all.
    return Outcome("survived", "") if code in (0, 5) else Outcome("noticed", told.split("\n")[0])


STILLBORN = 77
QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""pytest does not rewrite the assertions of plugins that are imported already."""


def _read(pipe: int, end: float) -> tuple[str, bool]:
    """What the child told, and whether it ended in time; its own children may hold the pipe longer than it lives."""
    told = b""
    while (left := end - time.monotonic()) > 0:
        if select.select([pipe], [], [], left)[0]:
            part = os.read(pipe, 65_536)
            if not part:
                os.close(pipe)
                return told.decode(errors="replace"), True
            told += part
    os.close(pipe)
    return told.decode(errors="replace"), False


def _end_group(pid: int) -> None:
    """The child leads a group, so that the programs which its tests started end with it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _be_tests(folder: Path, module: Path, files: list[str], failing: Collection[str], pipe: int) -> NoReturn:
    code = 3
    try:
        os.setpgid(0, 0)
        os.set_inheritable(pipe, False)
        _enter(folder)
        name = ".".join(module.with_suffix("").parts)
        try:
            importlib.import_module(
                name.replace("trainers.", "rubricem_trainers.", 1) if name.startswith("trainers") else name
            )
        except BaseException:
            os._exit(STILLBORN)
        left_out = [f"--deselect={nodeid}" for nodeid in failing]
        code = int(pytest.main(["-x", "-q", *QUIET, *left_out, *files], plugins=[_FirstFailure(pipe)]))
    finally:
        os._exit(code)


def _enter(folder: Path) -> None:
    """Makes the copy the project, here and in the processes that tests start."""
    os.chdir(folder)
    for name in [name for name in sys.modules if name.startswith(OURS)]:
        del sys.modules[name]
    sys.path[:] = [str(folder), *(entry for entry in sys.path if entry not in ("", os.environ.get("PWD", "")))]
    importlib.invalidate_caches()
    os.environ["PYTHONPATH"] = str(folder)
    os.environ["PWD"] = str(folder)
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
