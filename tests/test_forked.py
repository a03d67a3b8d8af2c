"""The plugin that forks the processes of the tests tells what pytest tells, and no test is lost with a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = {
    "test_ends.py": """
import os
import pytest

def test_passes(): pass
def test_dies(): os._exit(0)
def test_after_it_is_run(): pass

@pytest.mark.skip(reason="not here")
def test_is_skipped(): pass
""",
    "test_fails.py": """
import sys
import warnings
import pytest

STDERR = sys.stderr

@pytest.fixture
def broken():
    yield
    raise ValueError("at its end")

def test_fails():
    print("said before")
    print("said to an older object", file=STDERR)
    assert [1, 2] == [1, 3]

def test_of_the_fixture(broken): pass

@pytest.mark.filterwarnings("default")
def test_warns(): warnings.warn("take care")
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forked")
    for name, code in TESTS.items():
        (folder / name).write_text(code, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    return folder


def run(folder, *arguments):
    command = [sys.executable, "-m", "pytest", "-p", "tests.forked", "-p", "no:cacheprovider", "--forks", "2", "-rs"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_failures_are_told_and_a_process_that_dies_fails_its_test_alone(folder):
    done = run(folder)

    assert done.returncode == 1, done.stdout
    assert "2 failed, 4 passed, 1 skipped, 1 warning, 1 error" in done.stdout
    assert "a process of the tests ended with 0 at this test" in done.stdout
    assert "At index 1 diff: 2 != 3" in done.stdout
    assert "said before" in done.stdout
    assert "said to an older object" in done.stdout
    assert "ValueError: at its end" in done.stdout
    assert "UserWarning: take care" in done.stdout
    assert "not here" in done.stdout


def test_the_first_failure_ends_the_run_where_that_is_asked_for(folder):
    done = run(folder, "-x", "test_fails.py")

    assert done.returncode == 1, done.stdout
    assert "stopping after 1 failures" in done.stdout
    assert "1 failed in" in done.stdout


def test_coverage_of_all_processes_is_added_up(folder):
    (folder / "both.py").write_text("def a(): return 1\ndef b(): return 2\n")
    for name in "ab":
        (folder / f"test_{name}.py").write_text(f"import both\ndef test_{name}(): assert both.{name}()\n")

    done = run(folder, "--cov=both", "--cov-fail-under=100", "test_a.py", "test_b.py")

    assert done.returncode == 0, done.stdout
