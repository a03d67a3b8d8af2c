"""Trajectories read by hand: each expectation lies beside its file, with the sums that lead to its numbers."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.inspect import summary
from rubricem_agent.cli.main import app
from rubricem_env.domain.trajectory import load_trajectory
from rubricem_env.scaffold.parsed import parse_trajectory

HERE = Path(__file__).parent
NAMES = sorted(path.name.removesuffix(".expected.json") for path in HERE.glob("*.expected.json"))


@pytest.mark.parametrize("name", NAMES)
def test_the_parsed_trajectory_is_what_a_person_reads(name):
    expected = json.loads((HERE / f"{name}.expected.json").read_text(encoding="utf-8"))
    parsed = summary(parse_trajectory(load_trajectory((HERE / f"{name}.json").read_text(encoding="utf-8"))))
    codes = [{"code": violation["code"], "turn": violation["turn"]} for violation in parsed["violations"]]
    assert codes == expected["violations"]
    for key in ("stages", "citations", "answer", "complete"):
        assert parsed[key] == expected[key], key


def test_inspect_prints_the_parsed_trajectory_as_one_json_object():
    result = CliRunner().invoke(app, ["inspect", str(HERE / "clean_run.json"), "--json"])
    printed = json.loads(result.stdout)
    assert printed["stages"]["plan"] == [[0, 133]]
    assert set(printed) >= {"stages", "violations", "citations", "answer", "complete"}
