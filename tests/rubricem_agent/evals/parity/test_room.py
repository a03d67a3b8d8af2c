import ast
from pathlib import Path

import rubricem_agent

PACKAGE = Path(rubricem_agent.__file__).parent


def imports_parity(path: Path) -> bool:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    modules = (node.module or "" for node in nodes if isinstance(node, ast.ImportFrom))
    return any(module.startswith("rubricem_agent.evals.parity") for module in modules)


def test_only_the_command_knows_the_replay_of_recorded_verdicts():
    room = PACKAGE / "evals" / "parity"
    outside = [path for path in PACKAGE.rglob("*.py") if room not in path.parents and imports_parity(path)]

    assert outside == [PACKAGE / "cli" / "parity.py"]
