from pathlib import Path

import typer
from typer.testing import CliRunner

from rubricem_agent.cli.evals import parity

FIXTURES = Path(__file__).parents[2] / "fixtures" / "benchmarks"


def run(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(parity)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_the_command_prints_agreed_over_total_and_exits_with_0() -> None:
    path = FIXTURES / "simpleqa.dev.jsonl"

    assert run(str(path)) == (0, f"{path}: 24/24\n")


def test_an_unreadable_file_exits_with_2(tmp_path: Path) -> None:
    code, output = run(str(tmp_path / "absent.jsonl"))

    assert code == 2
    assert "cannot be read" in output
