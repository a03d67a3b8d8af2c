"""The command that simulates the steps of a config."""

import json

import pytest

from research import simulate
from tests.trainers.verl_backend.planning.conftest import RECIPE


def test_the_simulation_prints_every_variant_and_as_json_what_binds(capsys: pytest.CaptureFixture[str]) -> None:
    # Four questions a step: of 32 the same is shown, ten times as slowly.
    arguments = [str(RECIPE), "data.train_batch_size=4", "--nodes", "2", "--steps", "12"]
    arguments += ["--assume", "spread=0", "written_tokens=650"]

    assert simulate.main(arguments) == 0
    shown = capsys.readouterr().out
    assert [name.split(",")[0] in shown for name in simulate.VARIANTS] == [True] * len(simulate.VARIANTS)

    assert simulate.main([*arguments, "--json", "--times", "task_seconds=900"]) == 0
    outcomes = json.loads(capsys.readouterr().out)
    assert {outcome["binds"] for outcome in outcomes} == {"trains on rollouts"}
    assert {outcome["parts"]["trains on rollouts"] for outcome in outcomes} == {900.0}


@pytest.mark.parametrize(
    "arguments",
    [
        ["none.yaml"],
        [str(RECIPE), "--steps", "6"],
        [str(RECIPE), "--nodes", "0"],
        [str(RECIPE), "--times", "nap=1"],
        [str(RECIPE), "--times", "spread=-1"],
    ],
)
def test_a_simulation_that_cannot_be_ends_with_a_sentence(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate.main(arguments) == 2
    assert capsys.readouterr().err.startswith("simulate: ")
