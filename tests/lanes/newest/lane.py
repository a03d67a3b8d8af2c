"""Each extra alone, with the newest or the lowest releases that its ranges permit: installed, tested, its example run.

    python -m tests.lanes.newest.lane newest|lowest [EXTRA ...] [--torch torch==2.13.0] [--write]

`ci/lanes/newest/rooms.toml` says what is run for an extra. A failure is allowed only where `allowed.toml` beside it
names the extra and a release that is installed, with the reason. `--write` records the versions of what passed in
`tested.json`, of which docs/reference/versions.md is made.
"""

import argparse
import datetime
import fcntl
import json
import os
import platform
import shlex
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "ci" / "lanes" / "newest"
ROOMS = tomllib.loads((FOLDER / "rooms.toml").read_text(encoding="utf-8"))
TESTED = FOLDER / "tested.json"
RESOLUTIONS = {"newest": "highest", "lowest": "lowest-direct"}
TEST_TOOLS = ("hypothesis", "pytest", "pytest-asyncio")
LIMIT = 900.0
"""Seconds that one command may take."""


class Allowed(NamedTuple):
    """A failure that is known: of an extra, while this release of a package is installed."""

    extra: str
    package: str
    release: str
    reason: str


class Outcome(NamedTuple):
    """What became of one extra."""

    extra: str
    versions: dict[str, str]
    failed: str
    """The command that failed, with the end of what it printed; empty if none did."""
    seconds: float


def requirements(extra: str) -> list[Requirement]:
    """What pyproject asks for by name, in the core and in the extra, on this Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [Requirement(line) for line in [*project["dependencies"], *extras[extra]]]
    for own in [asking for asking in asked if asking.name == "rubricem"]:
        asked += [Requirement(line) for name in own.extras for line in extras[name]]
    here = default_environment()
    return [one for one in asked if one.name != "rubricem" and (not one.marker or one.marker.evaluate(here))]


def allowed_failures() -> list[Allowed]:
    """The rows of allowed.toml."""
    page = FOLDER / "allowed.toml"
    return [Allowed(**row) for row in tomllib.loads(page.read_text(encoding="utf-8")).get("allowed", [])]


def say(text: str) -> None:
    """Print a line now, for a long run that somebody watches."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Failed(Exception):
    """A command ended with an error, or not in time."""


def execute(command: list[str], place: Path | None = None) -> str:
    """What the command prints, from the root of the repository; the programs of the environment `place` come first."""
    path = f"{place / 'bin'}:{os.environ['PATH']}" if place else os.environ["PATH"]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PATH": path},
            timeout=LIMIT,
            text=True,
            check=True,
            capture_output=True,
        )
    except subprocess.SubprocessError as cause:
        printed = [getattr(cause, stream, None) or "" for stream in ("stdout", "stderr")]
        ends = [text if isinstance(text, str) else text.decode(errors="replace") for text in printed]
        raise Failed("\n".join([f"{shlex.join(command)}: {cause}", *(end[-4_000:] for end in ends)])) from cause
    return done.stdout


def try_extra(extra: str, which: str, *, folder: Path, uv: str, torch: str) -> Outcome:
    """Install the extra in a fresh environment of `folder`, run its room there, and keep the versions."""
    start = time.monotonic()
    place = folder / f"{which}-{extra}"
    versions: dict[str, str] = {}
    try:
        versions |= install(extra, which, place=place, uv=uv, torch=torch)
        run_room(extra, place)
    except Failed as failure:
        return Outcome(extra, versions, str(failure), time.monotonic() - start)
    return Outcome(extra, versions, "", time.monotonic() - start)


def install(extra: str, which: str, *, place: Path, uv: str, torch: str) -> dict[str, str]:
    """A fresh environment with the extra and the tools of tests; the versions of what pyproject names."""
    python = str(place / "bin" / "python")
    add = [uv, "pip", "install", "--quiet", "--python", python]
    execute([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place)])
    if torch and ROOMS[extra].get("torch"):
        # First and alone: asked for by another package it comes with gigabytes of CUDA.
        execute([*add, torch])
    execute([*add, "--resolution", RESOLUTIONS[which], "--editable", f".[{extra}]"])
    execute([*add, *TEST_TOOLS, *ROOMS[extra].get("with", [])])
    execute([uv, "pip", "check", "--python", python])
    named = sorted({canonicalize_name(asked.name) for asked in requirements(extra)})
    script = f"import importlib.metadata as m, json; print(json.dumps({{name: m.version(name) for name in {named}}}))"
    return {name: version.partition("+")[0] for name, version in json.loads(execute([python, "-c", script])).items()}


def run_room(extra: str, place: Path) -> None:
    """The tests and the examples of the extra, in its environment."""
    room = ROOMS[extra]
    options = ["-o", "addopts=-q -rs -p no:cacheprovider --import-mode=importlib"]
    if room.get("with_warnings"):
        options += ["-o", "filterwarnings=default"]
    printed = execute([str(place / "bin" / "python"), "-m", "pytest", *options, *room["tests"]], place)
    say(f"{extra}: {printed.strip().splitlines()[-1]}")
    for example in room.get("examples", []):
        program, *arguments = shlex.split(example)
        execute([str(place / "bin" / program), *arguments], place)


def reason_for(outcome: Outcome, allowed: list[Allowed]) -> str:
    """Why this failure is allowed; empty if it is not."""
    rows = [row for row in allowed if row.extra == outcome.extra]
    return next((row.reason for row in rows if outcome.versions.get(row.package) == row.release), "")


def record(outcome: Outcome, which: str) -> None:
    """Keep the versions of what passed; both lanes may run at the same time."""
    with TESTED.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        tested = json.loads(file.read() or "{}")
        tested.setdefault(outcome.extra, {})[which] = {
            "day": datetime.date.today().isoformat(),
            "python": platform.python_version(),
            "versions": outcome.versions,
        }
        file.truncate(0)
        ordered = {extra: dict(sorted(tested[extra].items())) for extra in ROOMS if extra in tested}
        file.write(json.dumps(ordered, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=RESOLUTIONS)
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help="all, if none is named")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv-releases" / "rooms")
    parser.add_argument("--uv", default="uv")
    parser.add_argument("--torch", default="torch==2.13.0", help="installed first; empty lets the resolver choose")
    parser.add_argument("--write", action="store_true", help="record the versions of what passed in tested.json")
    given = parser.parse_args()
    unknown = sorted(set(given.extras) - ROOMS.keys())
    if unknown:
        parser.error(f"there is no extra {', '.join(unknown)}; there are {', '.join(ROOMS)}.")

    def tried(extra: str) -> Outcome:
        outcome = try_extra(extra, given.which, folder=given.folder, uv=given.uv, torch=given.torch)
        state = "passed" if not outcome.failed else "FAILED"
        say(f"{extra}: {state} after {outcome.seconds:.0f} s with {outcome.versions}\n{outcome.failed}")
        if given.write and not outcome.failed:
            record(outcome, given.which)
        return outcome

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(tried, given.extras or ROOMS))
    wrong = [outcome for outcome in outcomes if outcome.failed]
    reasons = [reason_for(outcome, allowed_failures()) for outcome in wrong]
    for outcome, reason in zip(wrong, reasons, strict=True):
        say(f"{outcome.extra} failed: {reason or 'no row of allowed.toml names this release'}")
    return int(not all(reasons))


if __name__ == "__main__":
    sys.exit(main())
