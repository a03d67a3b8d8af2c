"""Random small changes of the core, each of which a test must notice; `make mutation-lane`.

    python -m tests.lanes.mutation.lane [--seed N] [--minutes 10] [--count N] [--room PATH] [--only TEXT] [--near]

Every run draws a new seed and prints it. Each mutant is made in a copy of the working tree and tested by the files that
import its module, the nearest first, then by those that import its importers. It survives if all of them pass. With a
record of which test runs which line (covered.py), those tests come first, and `--near` runs no others. A share
of noticed mutants under 95 % fails. Mutants that change nothing are listed in equivalent.toml, each with its reason.
"""

import argparse
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import ClassVar, NamedTuple

from tests.lanes.mutation.children import Outcome, preload, run_tests
from tests.lanes.mutation.covered import Covered
from tests.lanes.mutation.mutants import Mutant, find_mutants, mutated
from tests.lanes.mutation.reach import Reach

ROOT = Path(__file__).parents[3]
ROOMS = (
    "rubricem_agent/learn",
    "rubricem_agent/memory",
    "rubricem_agent/reflection",
    "rubricem_agent/evals/grading.py",
    "rubricem_agent/evals/runner.py",
    "rubricem_agent/evals/scoring.py",
    "rubricem_agent/evals/resumed_run.py",
    "rubricem_env/env",
    "rubricem_env/judge",
    "rubricem_env/llm/limits",
    "rubricem_env/scaffold",
    "rubricem_records/bank",
    "rubricem_records/evaluations",
    "trainers/local",
)
"""The core: what a score, a weight update or a lesson goes through."""
LEAST_SHARE = 0.95
NEAR_FILES = 8
"""How many files the first look has; most mutants end there."""
FAR_FILES = 32
COVERED_TESTS = 100
"""Of the tests that run a line, so many of the fastest."""
NEAR_SECONDS, FAR_SECONDS = 120, 180
"""A mutant that hangs is noticed; whether the machine is only slow is seen by the same tests without the change."""


class Case(NamedTuple):
    """A mutant and the module that it is of."""

    module: Path
    mutant: Mutant

    def __str__(self) -> str:
        place = f"{self.module}:{self.mutant.line}"
        return f"{place}: {self.mutant.change}" + (f"  (in {self.mutant.scope})" if self.mutant.scope else "")


class Equivalent(NamedTuple):
    """A change that changes nothing that a user could notice."""

    file: str
    scope: str
    change: str


class Copy:
    """A copy of the working tree in which one mutant at a time is made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)

    def write(self, module: Path, source: str) -> None:
        """Compiled files are believed by time and size, which a mutant may share with the original."""
        (self.folder / module).write_text(source, encoding="utf-8")
        for compiled in (self.folder / module).parent.glob(f"__pycache__/{module.stem}.*"):
            compiled.unlink(missing_ok=True)


class Bench:
    """Tests mutants in its copy, and remembers which tests fail there without any."""

    failing: ClassVar[set[str]] = set()
    sound: ClassVar[set[str]] = set()

    def __init__(self, copy: Copy, reach: Reach, covered: Covered | None, *, is_wide: bool) -> None:
        self._copy, self._reach, self._covered, self._is_wide = copy, reach, covered, is_wide

    def test(self, case: Case) -> Outcome:
        """What the tests say of this mutant."""
        original = (ROOT / case.module).read_text(encoding="utf-8")
        source = mutated(original, case.mutant)
        outcome = Outcome("survived", "")
        try:
            for files, seconds in self._waves(case):
                outcome = self._noticed(case.module, (original, source), files, seconds)
                if outcome.verdict != "survived":
                    break
        finally:
            self._copy.write(case.module, original)
        return outcome

    def _waves(self, case: Case) -> Iterator[tuple[Sequence[Path | str], int]]:
        """The tests that run the line, where that is recorded; then files by what they import."""
        tests = self._covered.tests_of(case.module, case.mutant.line) if self._covered and case.mutant.scope else None
        if tests:
            yield tests[:COVERED_TESTS], NEAR_SECONDS
        files = [path for wave in self._reach.tests_of(case.module) for path in wave]
        if self._is_wide or not tests:
            yield files[:NEAR_FILES], NEAR_SECONDS
        if self._is_wide:
            yield files[NEAR_FILES:FAR_FILES], FAR_SECONDS

    def _noticed(self, module: Path, sources: tuple[str, str], files: Sequence[Path | str], seconds: int) -> Outcome:
        """A failure counts if the same test passes without the mutant; one that fails anyway is left out after that."""
        original, source = sources
        while True:
            self._copy.write(module, source)
            outcome = run_tests(self._copy.folder, module, files, seconds, self.failing)
            if outcome.verdict == "survived" or outcome.test in self.sound:
                return outcome
            self._copy.write(module, original)
            wanted = [outcome.test] if outcome.test else files
            if run_tests(self._copy.folder, module, wanted, seconds, self.failing).verdict == "survived":
                if outcome.test:
                    self.sound.add(outcome.test)
                return outcome
            if not outcome.test:
                return Outcome("survived", "")
            self.failing.add(outcome.test)


def known_equivalents() -> set[Equivalent]:
    listed = tomllib.loads(Path(__file__).with_name("equivalent.toml").read_text(encoding="utf-8"))
    assert all(entry["reason"] for entry in listed["equivalent"])
    return {Equivalent(entry["file"], entry["scope"], entry["change"]) for entry in listed["equivalent"]}


def all_cases(rooms: list[str]) -> list[Case]:
    """Every mutant of the rooms, without those that are known to change nothing."""
    files = sorted(
        path for room in rooms for path in ([ROOT / room] if room.endswith(".py") else (ROOT / room).rglob("*.py"))
    )
    known = known_equivalents()
    modules = [path.relative_to(ROOT) for path in files if path.name != "__init__.py"]
    return [
        Case(module, mutant)
        for module in modules
        for mutant in find_mutants((ROOT / module).read_text(encoding="utf-8"))
        if Equivalent(str(module), mutant.scope, mutant.change) not in known
    ]


def run(
    cases: list[Case], *, minutes: float, workers: int, is_wide: bool, covered: Covered | None
) -> tuple[Counter[str], list[Case]]:
    """Tests one mutant after another until the time is over; how many ended how, and the survivors."""
    end = time.monotonic() + 60 * minutes
    counts: Counter[str] = Counter()
    survivors: list[Case] = []
    reach = Reach(ROOT)
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        benches: SimpleQueue[Bench] = SimpleQueue()
        for number in range(workers):
            (Path(folder) / str(number)).mkdir()
            benches.put(Bench(Copy(Path(folder) / str(number)), reach, covered, is_wide=is_wide))

        def test(case: Case) -> None:
            if time.monotonic() > end:
                return
            bench = benches.get()
            begun = time.monotonic()
            try:
                outcome = bench.test(case)
            finally:
                benches.put(bench)
            counts[outcome.verdict] += 1
            if outcome.verdict == "survived":
                survivors.append(case)
            sys.stdout.write(f"{outcome.verdict:9} {time.monotonic() - begun:4.0f} s  {case}  {outcome.test}\n")
            sys.stdout.flush()

        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(test, cases))
    return counts, survivors


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lanes.mutation.lane", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--count", type=int, default=10**6, help="the most mutants; without it, the time is the limit")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--near", action="store_true", help="only the nearest tests, which finds candidates faster")
    parser.add_argument("--covered", type=Path, help="the record of which test runs which line (covered.py)")
    parser.add_argument("--room", action="append", help="a folder or file, in place of the core")
    parser.add_argument("--only", default="", help="the mutants whose line holds this text")
    given = parser.parse_args()
    cases = [case for case in all_cases(given.room or list(ROOMS)) if given.only in str(case)]
    random.Random(given.seed).shuffle(cases)
    sys.stdout.write(f"seed {given.seed}, {len(cases):,} possible mutants\n")
    sys.stdout.flush()
    preload()
    covered = Covered(given.covered) if given.covered else None
    counts, survivors = run(
        cases[: given.count], minutes=given.minutes, workers=given.workers, is_wide=not given.near, covered=covered
    )
    noticed, missed = counts["noticed"] + counts["timeout"], len(survivors)
    share = noticed / max(1, noticed + missed)
    for case in survivors:
        sys.stdout.write(f"survived: {case}\n")
    others = ", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items()))
    sys.stdout.write(f"seed {given.seed}: {share:.1%} of {noticed + missed} noticed ({others})\n")
    return 0 if share >= LEAST_SHARE and noticed else 1


if __name__ == "__main__":
    sys.exit(main())
