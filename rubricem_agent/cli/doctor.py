"""`rubricem doctor`: what is installed, which keys are set, what the machine can run, and what to do about each gap."""

import os
import platform
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Literal, NamedTuple

from packaging.requirements import Requirement
from rich.markup import escape

from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal, plain_table

State = Literal["ok", "missing", "wrong", "note"]

KEYS = (
    (
        "GEMINI_API_KEY",
        "google_search, and policies, judges and teachers that are gemini:MODEL; GOOGLE_API_KEY does as well",
    ),
    ("S2_API_KEY", "a higher rate at Semantic Scholar; snippet_search works without"),
    ("OPENAI_API_KEY", "policies, judges and teachers at api.openai.com; it goes to no other address"),
    ("RUBRICEM_POLICY_KEY", "a policy at any other address, such as --policy openai:MODEL@URL, where it wants one"),
    ("RUBRICEM_JUDGE_KEY", "a judge at any other address, such as --judge openai:MODEL@URL, where it wants one"),
    ("RUBRICEM_TEACHER_KEY", "a teacher at any other address, such as --teacher openai:MODEL@URL, where it wants one"),
    ("RUBRICEM_TOOLS_TOKEN", "a tool server at an address, such as --tools http://HOST:8765/mcp"),
    ("SERPER_API_KEY", "the plain web-search backend"),
    ("RUBRICEM_SEARCH_KEY", "google_search at any other address that speaks Gemini's API (google_search.url)"),
)
CONFLICTS = (
    ("verifiers", "openenv", "verifiers pins mcp 2.0.0 and openenv needs mcp below 2: use one environment for each."),
    (
        "verifiers",
        "tools",
        "verifiers pins mcp 2.0.0 and the tools extra is built for 2.3: use one environment for each.",
    ),
    (
        "openenv",
        "tools",
        "openenv needs mcp below 2 and the tools extra is built for 2.3: use one environment for each.",
    ),
)


class DoctorCheck(NamedTuple):
    """One thing that was looked at."""

    section: str
    name: str
    state: State
    detail: str
    remedy: str = ""


def doctor(*, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Say what is installed, which keys are set (never their values) and what this machine can run.

    --quiet prints what is wrong, and nothing where all is well.
    """
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    findings = [*look_at_packages(), *look_at_keys(os.environ), *look_at_machine()]
    table = plain_table("", "", "what to do")
    marks = {"ok": "[green]ok[/green]", "missing": "[yellow]--[/yellow]", "wrong": "[red]!![/red]", "note": "  "}
    section = ""
    for finding in findings:
        if finding.section != section:
            section = finding.section
            table.add_row(f"[bold]{section}[/bold]", "", "")
        table.add_row(f"{marks[finding.state]} {finding.name}", escape(finding.detail), escape(finding.remedy))
    terminal.show(table)
    wrong = [finding for finding in findings if finding.state == "wrong"]
    terminal.close(
        [finding._asdict() for finding in findings],
        f"\n{len(wrong)} to mend; what is missing is needed only for what stands beside it.",
        brief="\n".join(f"{finding.name}: {finding.detail}. {finding.remedy}" for finding in wrong),
    )


def look_at_packages() -> list[DoctorCheck]:
    """Each extra with the packages that it lacks or has in a version outside the tested range."""
    wanted = [Requirement(text) for text in requires("rubricem") or []]
    extras = sorted({_extra_of(requirement) for requirement in wanted} - {""})
    findings = []
    for extra in ["", *extras]:
        of_extra = [requirement for requirement in wanted if _extra_of(requirement) == extra]
        findings.append(DoctorCheck("packages", extra or "core", *judge_packages(of_extra, extra)))
    installed = {finding.name for finding in findings if finding.state in ("ok", "wrong")}
    return [*findings, *find_conflicts(installed)]


def find_conflicts(extras: Collection[str]) -> list[DoctorCheck]:
    """The pairs among installed extras whose pins exclude each other, with what to do."""
    return [
        DoctorCheck("packages", f"{first} + {second}", "wrong", "conflicting pins", sentence)
        for first, second, sentence in CONFLICTS
        if first in extras and second in extras
    ]


def _extra_of(requirement: Requirement) -> str:
    marker = str(requirement.marker) if requirement.marker else ""
    return marker.split('extra == "')[1].split('"')[0] if 'extra == "' in marker else ""


class PackageState(NamedTuple):
    """How the packages of one extra stand."""

    state: State
    detail: str
    remedy: str


def judge_packages(requirements: Sequence[Requirement], extra: str) -> PackageState:
    """Wrong where a version lies outside its tested range, else missing where a package is absent, else ok."""
    absent: list[str] = []
    outside: list[str] = []
    present: list[str] = []
    for requirement in requirements:
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            absent.append(requirement.name)
            continue
        if requirement.specifier.contains(found, prereleases=True):
            present.append(f"{requirement.name} {found}")
        else:
            outside.append(f"{requirement.name} {found} (tested: {requirement.specifier})")
    install = f"pip install 'rubricem[{extra}]'" if extra else "pip install rubricem"
    if outside:
        return PackageState("wrong", ", ".join(outside), install)
    if absent:
        return PackageState("missing", "without " + ", ".join(absent), install)
    return PackageState("ok", ", ".join(present), "")


def look_at_keys(environment: Mapping[str, str]) -> list[DoctorCheck]:
    """Which keys are set; their values are not looked at."""
    findings = []
    for name, purpose in KEYS:
        is_set = bool(environment.get(name, "").strip())
        remedy = "" if is_set else f"export {name}=... for {purpose}"
        findings.append(
            DoctorCheck("keys", name, "ok" if is_set else "missing", "set" if is_set else "not set", remedy)
        )
    return findings


def look_at_machine() -> list[DoctorCheck]:
    """The machine, and what it is enough for."""
    cores = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else 0.0
    free = shutil.disk_usage(".").free / 2**30
    has_gpu = shutil.which("nvidia-smi") is not None
    python_fits = (3, 11) <= sys.version_info < (3, 13)
    python = platform.python_version()
    driver = "NVIDIA driver found" if has_gpu else "no NVIDIA driver"
    without = "" if has_gpu else "the offline world and its small models run without; the 8B recipe needs 16 H100s"
    return [
        DoctorCheck(
            "machine", "python", "ok" if python_fits else "wrong", python, "" if python_fits else "use Python 3.11"
        ),
        DoctorCheck("machine", "size", "note", f"{cores} cores, {memory:.0f} GiB, {free:.0f} GiB free here"),
        DoctorCheck("machine", "GPU", "ok" if has_gpu else "missing", driver, without),
        DoctorCheck("machine", "offline episodes", "ok", "need no key, GPU or network"),
    ]
