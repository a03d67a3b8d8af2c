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
    *("progress", "policy", "prompting", "memory", "rollout", "reflection", "learn", "adapters"),
    *("data", "evals", "model_names", "config_bases", "config", "yaml_config", "wiring", "cli"),
)
LAYERS = (
    *(f"rubricem_env.{name}" for name in ENV),
    "rubricem_records",
    "rubricem_viewer",
    *(f"rubricem_agent.{name}" for name in AGENT),
    "trainers",
    "research",
)
PACKAGES = ("rubricem_env", "rubricem_records", "rubricem_viewer", "rubricem_agent", "trainers", "research")
INSTALLED_NAMES = {"rubricem_trainers": "trainers"}
"""A package by the name under which it is installed."""
LAZY_EXPORTS = "rubricem_env.exports"
"""The one module that imports what is named elsewhere: the public names of each package's stub."""
COMPOSITION_ROOT = "rubricem_agent.wiring"
STRANGERS = {("rubricem_env.judge", "rubricem_env.env"), ("rubricem_env.env", "rubricem_env.judge")}
"""Judge and environment do not know each other."""


def modules() -> dict[str, ast.Module]:
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(tree: ast.AST, package: str) -> Iterator[str]:
    """All names that a module of `package` imports; "from a import b" gives a and a.b, and only modules count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            is_trainer = package.split(".")[0] == "trainers"
            assert node.level == 0 or is_trainer, "imports are absolute, but in trainers, which a wheel calls otherwise"
            home = resolve_name(f"{'.' * node.level}{node.module}", package)
            yield home
            yield from (f"{home}.{alias.name}" for alias in node.names)


def modules_in_strings(tree: ast.AST) -> Iterator[str]:
    """All strings that name a module of ours, such as "rubricem_trainers.local.ssgrpo", for an import or `-m`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            package, *rest = node.value.partition(":")[0].split(".")
            named = ".".join([INSTALLED_NAMES.get(package, package), *rest])
            if rest and named in MODULES:
                yield named


def computed_imports(tree: ast.Module) -> list[str]:
    """The calls that import a module whose name is neither a string, nor a constant of the file, nor in its package."""
    constants = {ast.unparse(target) for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    imported = (call for call in calls if ast.unparse(call.func).split(".")[-1] in ("import_module", "__import__"))
    return [ast.unparse(call) for call in imported if not is_written_out(call.args[0], constants)]


def is_written_out(argument: ast.expr, constants: set[str]) -> bool:
    if isinstance(argument, ast.IfExp):
        return is_written_out(argument.body, constants) and is_written_out(argument.orelse, constants)
    text = ast.unparse(argument)
    return isinstance(argument, ast.Constant) or text in constants or text.startswith("f'{__package__}.")


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
HIDDEN_ARROWS = [(name, target) for name, tree in MODULES.items() for target in set(modules_in_strings(tree))]
"""From a module to one that it names in a text."""


def test_every_module_lives_in_a_known_layer():
    top = {
        "rubricem_env",
        "rubricem_env.registration",
        "rubricem_env.concurrency",
        "rubricem_env.exports",
        "rubricem_env.heap",
        "rubricem_agent",
    }
    assert [name for name in MODULES if layer_of(name) is None and name not in top] == [], (
        "a module outside the layers: put it into a folder of ENV, AGENT or TRAINERS, or list its folder above"
    )


@pytest.mark.parametrize("arrows", [ARROWS, HIDDEN_ARROWS], ids=["imports", "texts"])
def test_no_arrow_points_up(arrows):
    ranked = ((source, target, layer_of(source), layer_of(target)) for source, target in arrows)
    upward = [
        f"{source} -> {target}" for source, target, a, b in ranked if a and b and LAYERS.index(b) > LAYERS.index(a)
    ]
    assert upward == [], "a lower layer imports a higher one: move what it needs down, or pass it in as an argument"


def test_a_module_is_imported_under_a_name_that_is_written_out():
    assert {name: calls for name, tree in MODULES.items() if (calls := computed_imports(tree))} == {
        LAZY_EXPORTS: ["import_module(homes[name])"]
    }


def test_names_in_texts_are_found():
    text = 'import_module("rubricem_trainers.settings"); run(["-m", "rubricem_agent.cli.main"])'
    assert set(modules_in_strings(ast.parse(text))) == {"trainers.settings", "rubricem_agent.cli.main"}
    assert computed_imports(ast.parse("import_module(name); import_module(f'{__package__}.x')")) == [
        "import_module(name)"
    ]


def test_nothing_in_the_environment_knows_the_agent_and_judge_and_environment_do_not_know_each_other():
    assert [arrow for arrow in ARROWS if arrow[0].startswith("rubricem_env") and "rubricem_agent" in arrow[1]] == []
    assert [arrow for arrow in ARROWS if (layer_of(arrow[0]), layer_of(arrow[1])) in STRANGERS] == [], (
        "these two layers do not know each other: connect them in rubricem_agent/wiring"
    )


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
    assert {name for name in inside if layer_of(name) != COMPOSITION_ROOT} == set(), (
        "an import within a function stands in rubricem_agent/wiring alone: import at the top"
    )


def test_the_domain_needs_pydantic_alone_and_registration_gymnasium_alone():
    for prefix, allowed in (("rubricem_env.domain", {"pydantic"}), ("rubricem_env.registration", {"gymnasium"})):
        trees = {name: tree for name, tree in MODULES.items() if name.startswith(prefix)}
        outside = {target.split(".")[0] for name, tree in trees.items() for target in imports(tree, package_of(name))}
        assert allowed <= outside, f"{prefix} names no module that imports {allowed}"
        assert outside - set(sys.stdlib_module_names) - {"rubricem_env"} <= allowed, (
            f"{prefix} imports another library: list it above, and in the extra of pyproject.toml that needs it"
        )
