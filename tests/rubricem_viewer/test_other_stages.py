"""Runs of other stages than deep research's in the viewer: one stage, three, four of other names, eight."""

import json

import pytest

from rubricem_viewer.report import render_report
from tests.rubricem_viewer.recorded_stages import record_run
from tests.scaffolds import SCAFFOLDS

OTHERS = SCAFFOLDS[1:]


@pytest.fixture(params=OTHERS, ids=lambda scaffold: scaffold.name)
def scaffold(request):
    return request.param


@pytest.fixture
def asked(tmp_path, serve, scaffold):
    (tmp_path / "run").mkdir()
    record_run(tmp_path / "run", scaffold)
    return serve(tmp_path / "run")


def test_a_card_and_the_curves_name_the_stages_in_order(asked, scaffold):
    figures = {one["key"]: one for one in asked("/curves")["figures"]}

    assert asked("")["card"]["scores"] == dict.fromkeys(scaffold.names, 0.25)
    assert list(asked("")["card"]["scores"]) == list(scaffold.names)
    assert [one["name"] for one in figures["held_out.stages"]["curves"]] == list(scaffold.names)
    assert figures["held_out.answer"]["curves"][0]["stage"] == scaffold.last
    assert {f"judged.{name}" for name in scaffold.names} <= figures.keys()


def test_attempts_are_listed_and_ordered_by_any_stage(asked, scaffold):
    for name in scaffold.names:
        page = asked("/trajectories", stage=name, sort="best")
        assert [row["attempt"] for row in page["rows"]] == [2, 2, 1, 1, 0, 0]
        assert list(page["rows"][0]["scores"].values()) == [1.0] * len(scaffold.names)
        assert asked("/groups/1-0", sort=name)["rollouts"][0]["row"]["attempt"] == 2
    for path in ("/trajectories", "/groups/1-0"):
        parameter = "stage" if path == "/trajectories" else "sort"
        said = asked(path, expect=422, **{parameter: "plan"})["message"]
        assert said == f"this run has no stage 'plan'; its stages are {', '.join(scaffold.names)}."


def test_an_attempt_is_cut_into_its_stages_and_blocks(asked, scaffold):
    view = asked("/trajectories/1-0-1")

    assert [(one["stage"], one["score"], one["happened"]) for one in view["stages"]] == [
        (name, 0.5, True) for name in scaffold.names
    ]
    assert {one["stage"] for one in view["elements"]} - {""} == {*scaffold.names}
    blocks = [one["name"] for one in view["elements"] if one["kind"] == "block"]
    assert {*blocks} == {*scaffold.blocks} - {"state_evaluation"}
    assert view["elements"][-1]["kind"] == "answer"
    assert not [one for one in view["elements"] if one["kind"] == "text"]


def test_tokens_have_the_advantages_of_their_stages(asked, scaffold):
    tokens = asked("/trajectories/1-0-0/tokens")

    advantages = [place - 1.0 for place in range(len(scaffold.names))]
    assert tokens["advantages"] == [None, *advantages, None]


def test_groups_and_questions_show_the_stages(asked, scaffold):
    group = asked("/groups/1-0")
    assert list(group["rollouts"][0]["advantages"]) == list(scaffold.names)
    assert [one["key"] for one in group["separators"] if one["kind"] == "stage"] == list(scaffold.names)
    assert asked("/questions/k")["rubrics"][0]["rubric"]["stage"] == scaffold.last


def test_runs_of_different_stages_stand_side_by_side(tmp_path, serve):
    for scaffold in OTHERS[:2]:
        (tmp_path / scaffold.name).mkdir()
        record_run(tmp_path / scaffold.name, scaffold)
    served = serve(tmp_path)

    runs = [served.cards[scaffold.name]["id"] for scaffold in OTHERS[:2]]
    compared = served.client.get("/api/compare", params={"run": runs}).json()

    assert [tuple(run["scores"]) for run in compared["runs"]] == [scaffold.names for scaffold in OTHERS[:2]]
    answers = next(one for one in compared["figures"] if one["key"] == "held_out.answer")
    assert [curve["run"] for curve in answers["curves"]] == runs


def test_the_report_is_written(tmp_path, scaffold):
    record_run(tmp_path, scaffold)

    assert scaffold.last in render_report(tmp_path)


def test_an_attempt_of_other_stages_than_its_record_is_refused(asked, scaffold):
    folder = asked.folder / "record"
    for index in folder.glob("*.index.jsonl"):
        names = [f"x{number}" for number in range(len(scaffold.names))]
        first, _, rest = index.read_text().partition("\n")
        index.write_text(json.dumps({**json.loads(first), "stages": names}) + "\n" + rest)

    said = asked("/trajectories/1-0-0", expect=409)["message"]
    assert "has other stages than its record, which names x0" in said


@pytest.mark.parametrize("stages", [[], ["a"] * 2, ["A"], [f"s{number}" for number in range(9)], ["<b>"]])
def test_a_header_with_names_of_no_stages_is_named(tmp_path, serve, stages):
    record_run(tmp_path, OTHERS[0])
    index = tmp_path / "record" / "groups.index.jsonl"
    first, _, rest = index.read_text().partition("\n")
    index.write_text(json.dumps({**json.loads(first), "stages": stages}) + "\n" + rest)

    assert "is not the record of a run" in next(iter(serve(tmp_path).cards.values()))["problem"]
