"""Every assumption of a plan says where it is from and how far it can be off, and the plan shows both ends."""

import json

import pytest

from trainers.verl_backend.command import main
from trainers.verl_backend.planning.ranges import RANGES, at_ends
from trainers.verl_backend.planning.run_shape import Assumptions

ASSUMED = Assumptions()


def test_every_assumption_has_two_ends_around_its_value_and_a_source():
    assert set(RANGES) == set(Assumptions.model_fields)
    for name, value in ASSUMED.model_dump().items():
        cheap, dear, source = RANGES[name]
        assert min(cheap, dear) <= value <= max(cheap, dear), name
        assert source


def test_what_a_user_gives_stays_at_both_ends():
    given = ASSUMED.model_copy(update={"searches": 7.0})
    cheap, dear = at_ends(given, {"searches": None})
    assert (cheap.searches, dear.searches) == (7.0, 7.0)
    assert (cheap.cached, dear.cached) == (0.5, 0.0)


def plan(capsys, *arguments):
    assert main(["--config-name", *arguments, "--dry-run", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["verl_rubricem_8b", "verl_rubricem_8b_h100", "verl_rubricem_8b_lean"])
def test_the_plan_lies_between_its_ends(name, capsys):
    document = plan(capsys, name)
    run = document["plans"]["32" if name == "verl_rubricem_8b" else "16"]
    for what, section in (("seconds of a step", "seconds of a step"), ("dollars of the run", "dollars of the run")):
        cheap, dear = document["range"][what]
        assert cheap < run[section]["total"] < dear


def test_an_assumption_of_ones_own_moves_both_ends(capsys):
    before = plan(capsys, "verl_rubricem_8b")["range"]["dollars of the run"]
    after = plan(capsys, "verl_rubricem_8b", "--assume", "gpu_hour_dollars=100")["range"]["dollars of the run"]
    assert all(late > early for early, late in zip(before, after, strict=True))


def test_what_to_change_first_begins_with_the_most_dollars_and_names_the_keys(capsys):
    savings = plan(capsys, "verl_rubricem_8b")["what to change first"]
    *single, together = savings
    assert [one["dollars"] for one in single] == sorted((one["dollars"] for one in single), reverse=True)
    assert single[0]["changes"] == ["++rubricem.tools.google_search={engine: serper}"]
    # 256 attempts x 6 searches x 0.7 of Google are 1,075 searches a step: 1.4 cents and a model's tokens, or 0.1 cents.
    assert 1_400 * 1_075 * (0.014 - 0.001) < single[0]["dollars"] < 1_400 * 1_075 * 0.02
    assert together["what"] == "all of these"
    assert together["seconds"] > max(one["seconds"] for one in single)


def test_a_change_that_a_config_has_is_not_named(capsys):
    named = {one["what"] for one in plan(capsys, "verl_rubricem_8b_lean")["what to change first"]}
    assert "two steps ahead" not in named
    assert not any("serper" in what or "openalex" in what for what in named)


def test_on_a_cpu_there_is_nothing_to_change(capsys):
    document = plan(capsys, "verl_almanac_cpu")
    assert (document["range"], document["what to change first"]) == ({}, [])


def test_the_lean_file_costs_at_most_half_and_takes_three_quarters_of_the_time(capsys):
    paper, lean = (plan(capsys, name)["plans"] for name in ("verl_rubricem_8b", "verl_rubricem_8b_lean"))
    for gpus in ("16", "32"):
        assert lean[gpus]["dollars of the run"]["total"] <= paper[gpus]["dollars of the run"]["total"] / 2
        assert lean[gpus]["seconds of a step"]["total"] <= 0.75 * paper[gpus]["seconds of a step"]["total"]
