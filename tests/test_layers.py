"""The house keeps its shape: arrows point down, nothing goes round in a circle, imports stand at the top."""

import ast
import graphlib
import sys
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

pytestmark = pytest.mark.no_cover

ROOT = Path(__file__).parents[1]
ENV = ("domain", "scaffold", "llm", "tools", "judge", "world", "env", "adapters", "testing")
AGENT = (
    *("policy", "prompting", "memory", "rollout", "reflection", "learn", "adapters"),
    *("data", "evals", "config_bases", "config", "wiring", "cli"),
)
ABOVE_VIEWER = ("config", "wiring", "cli")
LAYERS = (
    *(f"rubricem_env.{name}" for name in ENV),
    *(f"rubricem_agent.{name}" for name in AGENT if name not in ABOVE_VIEWER),
    "rubricem_viewer",
    *(f"rubricem_agent.{name}" for name in ABOVE_VIEWER),
    "trainers",
    "research",
)
PACKAGES = ("rubricem_env", "rubricem_agent", "rubricem_viewer", "trainers", "research")
COMPOSITION_ROOT = "rubricem_agent.wiring"
STRANGERS = {("rubricem_env.judge", "rubricem_env.env"), ("rubricem_env.env", "rubricem_env.judge")}
"""Judge and environment do not know each other."""


def modules() -> dict[str, ast.Module]:
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(tree: ast.AST, package: str) -> Iterator[str]:
    """All names that a module of `package` imports; "from a import b" gives both a and a.b, of which only modules count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            is_trainer = package.split(".")[0] == "trainers"
            assert node.level == 0 or is_trainer, "imports are absolute, but in trainers, which a wheel calls otherwise"
            home = resolve_name(f"{'.' * node.level}{node.module}", package)
            yield home
            yield from (f"{home}.{alias.name}" for alias in node.names)


def package_of(module: str) -> str:
    """The package in which a module's relative imports begin."""
    return module if ROOT.joinpath(*module.split(".")).is_dir() else module.rpartition(".")[0]


def layer_of(module: str) -> str | None:
    """The layer of a module; None for the packages' own top-level files, which tie things together."""
    return next((layer for layer in LAYERS if module == layer or module.startswith(layer + ".")), None)


MODULES = modules()
ARROWS = [
    (name, target)
    for name, tree in MODULES.items()
    for target in set(imports(tree, package_of(name)))
    if target in MODULES
]


def test_every_module_lives_in_a_known_layer():
    top = {
        "rubricem_env",
        "rubricem_env.registration",
        "rubricem_env.concurrency",
        "rubricem_env.exports",
        "rubricem_agent",
        "rubricem_agent.files",
    }
    assert [name for name in MODULES if layer_of(name) is None and name not in top] == []


def test_no_arrow_points_up():
    ranked = ((source, target, layer_of(source), layer_of(target)) for source, target in ARROWS)
    upward = [
        f"{source} -> {target}" for source, target, a, b in ranked if a and b and LAYERS.index(b) > LAYERS.index(a)
    ]
    assert upward == []


def test_nothing_in_the_environment_knows_the_agent_and_judge_and_environment_do_not_know_each_other():
    assert [arrow for arrow in ARROWS if arrow[0].startswith("rubricem_env") and "rubricem_agent" in arrow[1]] == []
    assert [arrow for arrow in ARROWS if (layer_of(arrow[0]), layer_of(arrow[1])) in STRANGERS] == []


def test_no_module_imports_itself_by_a_detour():
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for source, target in ARROWS:
        if source != target and not source.startswith(target + "."):
            graph[source].add(target)
    tuple(graphlib.TopologicalSorter(graph).static_order())


def test_no_import_stands_inside_a_function_outside_the_composition_root():
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    inside = {
        name
        for name, tree in MODULES.items()
        for function in ast.walk(tree)
        if isinstance(function, functions)
        and any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(function))
    }
    assert {name for name in inside if layer_of(name) != COMPOSITION_ROOT} == set()


def test_the_domain_needs_pydantic_alone_and_registration_gymnasium_alone():
    for prefix, allowed in (("rubricem_env.domain", {"pydantic"}), ("rubricem_env.registration", {"gymnasium"})):
        outside = {
            target.split(".")[0]
            for name, tree in MODULES.items()
            if name.startswith(prefix)
            for target in imports(tree, package_of(name))
        }
        assert outside - set(sys.stdlib_module_names) - {"rubricem_env"} <= allowed
