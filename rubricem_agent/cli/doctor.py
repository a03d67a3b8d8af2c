"""`rubricem doctor`: installed packages, keys that are set, the machine, and how to fix each problem."""

import os
import platform
import shutil
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Literal, NamedTuple

from packaging.requirements import Requirement
from rich.markup import escape

from rubricem_agent.cli.command import command
from rubricem_agent.cli.terminal import Terminal, plain_table
from rubricem_env.llm.hosts import url_host
from rubricem_env.tools.engines import ENGINES

State = Literal["ok", "missing", "wrong", "note"]

KEYS = (
    ("GEMINI_API_KEY", "google_search, and gemini:MODEL policies, judges and teachers; GOOGLE_API_KEY works as well"),
    ("OPENAI_API_KEY", "policies, judges and teachers at api.openai.com; it goes to no other address"),
    ("ANTHROPIC_API_KEY", "policies, judges and teachers at api.anthropic.com; it goes to no other address"),
    ("RUBRICEM_POLICY_KEY", "a policy at any other address that needs one, such as --policy openai:MODEL@URL"),
    ("RUBRICEM_JUDGE_KEY", "a judge at any other address that needs one, such as --judge openai:MODEL@URL"),
    ("RUBRICEM_TEACHER_KEY", "a teacher at any other address that needs one, such as --teacher openai:MODEL@URL"),
    ("RUBRICEM_TOOLS_TOKEN", "the server of --tools https://HOST/mcp; it goes to HOST, or RUBRICEM_TOOLS_TOKEN_HOST"),
    *(
        (
            engine.key,
            f"{engine.spec.name} by {name}{'' if engine.needs_key else ', which works at a low rate without'}; it goes "
            f"to {url_host(engine.url)}, or to {engine.key}_HOST",
        )
        for name, engine in ENGINES.items()
        if engine.key and name not in ("gemini", "plain")
    ),
    ("RUBRICEM_SEARCH_KEY", "google_search.url, which speaks Gemini's API; it goes to RUBRICEM_SEARCH_KEY_HOST"),
    ("JINA_API_KEY", "pages by jina, which works at a low rate without; it goes to r.jina.ai, or JINA_API_KEY_HOST"),
    ("CRAWL4AI_API_KEY", "pages read by a crawl4ai server that needs one; it goes to CRAWL4AI_API_KEY_HOST"),
)
CONFLICTS = (
    ("verifiers", "openenv", "verifiers pins mcp 2.0.0 and openenv needs mcp below 2: use one environment for each."),
    ("verifiers", "tools", "verifiers pins mcp 2.0.0 and the tools extra needs 2.3: use one environment for each."),
    ("openenv", "tools", "openenv needs mcp below 2 and the tools extra needs 2.3: use one environment for each."),
)
"""Pairs of extras whose pins exclude each other, with the way out."""


class DoctorCheck(NamedTuple):
    """The result of one check."""

    section: str
    name: str
    state: State
    detail: str
    remedy: str = ""


@command
def doctor(terminal: Terminal) -> None:
    """Show what is installed, which keys are set (never their values) and what this machine can run.

    --quiet prints the problems alone, and nothing where there are none.
    """
    checks = [*check_packages(), *check_keys(os.environ), *check_machine()]
    table = plain_table("", "", "what to do")
    signs = {"ok": "[green]ok[/green]", "missing": "[yellow]--[/yellow]", "wrong": "[red]!![/red]", "note": "  "}
    section = ""
    for check in checks:
        if check.section != section:
            section = check.section
            table.add_row(f"[bold]{section}[/bold]", "", "")
        table.add_row(f"{signs[check.state]} {check.name}", escape(check.detail), escape(check.remedy))
    terminal.show(table)
    problems = [check for check in checks if check.state == "wrong"]
    count = f"{len(problems)} problem{'s' * (len(problems) > 1)}" if problems else "No problems"
    terminal.close(
        [check._asdict() for check in checks],
        f"\n{count}. Missing packages and keys only affect the features listed beside them.",
        brief="\n".join(f"{check.name}: {check.detail}. {check.remedy}" for check in problems),
    )


def check_packages() -> list[DoctorCheck]:
    """One check for each extra, then one for each conflict between installed extras."""
    required = [Requirement(text) for text in requires("rubricem") or []]
    by_extra: dict[str, list[Requirement]] = {"": []}
    for requirement in required:
        marker = str(requirement.marker or "").partition('extra == "')[2]
        by_extra.setdefault(marker.partition('"')[0], []).append(requirement)
    checks = [check_extra(extra, by_extra[extra]) for extra in sorted(by_extra)]
    return [*checks, *find_conflicts({check.name for check in checks if check.state in ("ok", "wrong")})]


def find_conflicts(extras: Collection[str]) -> list[DoctorCheck]:
    """The pairs among installed extras whose pins exclude each other."""
    return [
        DoctorCheck("packages", f"{first} + {second}", "wrong", "conflicting pins", sentence)
        for first, second, sentence in CONFLICTS
        if first in extras and second in extras
    ]


def check_extra(extra: str, requirements: Sequence[Requirement]) -> DoctorCheck:
    """Wrong where a version is outside its tested range, else missing where a package is absent, else ok."""
    absent: list[str] = []
    outside: list[str] = []
    present: list[str] = []
    for requirement in requirements:
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            absent.append(requirement.name)
            continue
        if requirement.specifier.contains(installed, prereleases=True):
            present.append(f"{requirement.name} {installed}")
        else:
            outside.append(f"{requirement.name} {installed} (tested: {requirement.specifier})")
    name = extra or "core"
    install = f"pip install 'rubricem[{extra}]'" if extra else "pip install rubricem"
    if outside:
        return DoctorCheck("packages", name, "wrong", ", ".join(outside), install)
    if absent:
        return DoctorCheck("packages", name, "missing", "without " + ", ".join(absent), install)
    return DoctorCheck("packages", name, "ok", ", ".join(present))


def check_keys(environment: Mapping[str, str]) -> list[DoctorCheck]:
    """Which keys are set; their values are not read."""
    return [
        DoctorCheck("keys", name, "ok", "set")
        if environment.get(name, "").strip()
        else DoctorCheck("keys", name, "missing", "not set", f"export {name}=... for {purpose}")
        for name, purpose in KEYS
    ]


def check_machine() -> list[DoctorCheck]:
    """Python, cores, memory, disk and GPU."""
    cores = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else 0.0
    free = shutil.disk_usage(".").free / 2**30
    gpu = DoctorCheck("machine", "GPU", "ok", "NVIDIA driver found")
    if shutil.which("nvidia-smi") is None:
        without = "the offline world and its small models run without; the 8B recipe needs 16 H100s"
        gpu = DoctorCheck("machine", "GPU", "missing", "no NVIDIA driver", without)
    return [
        DoctorCheck("machine", "python", "ok", platform.python_version()),
        DoctorCheck("machine", "size", "note", f"{cores} cores, {memory:.0f} GiB, {free:.0f} GiB free here"),
        gpu,
        DoctorCheck("machine", "offline episodes", "ok", "need no key, GPU or network"),
    ]
