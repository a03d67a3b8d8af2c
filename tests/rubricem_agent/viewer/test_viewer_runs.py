"""Runs in the viewer: the list and its states, curves, and several side by side."""

import json
import os
import time

import pytest

from rubricem_agent.viewer.ablation import Ablation, CurvePoint, RecipeResult, Spread
from rubricem_agent.viewer.runs import RunShelf
from rubricem_env.domain.errors import FileFormatError


def cards(client):
    return {card["name"]: card for card in client.get("/api/runs").json()["runs"]}


def age(folder, seconds):
    """Make every file of a folder that old."""
    then = time.time() - seconds
    for path in [*folder.rglob("*")]:
        os.utime(path, (then, then))


def test_a_folder_of_runs_is_listed_with_the_latest_first(tmp_path, made):
    for name, old in (("b", 3_000), ("deep/er/a", 1_000), ("c", 2_000)):
        age(made.Recording(tmp_path / name).folder, old)

    with made.viewer(tmp_path) as client:
        assert list(cards(client)) == ["deep/er/a", "c", "b"]
        assert client.get("/api/about").json()["only_run"] is None


def test_a_run_s_own_folder_is_opened_at_once(recording, looked_at):
    with looked_at() as get:
        assert get.client.get("/api/about").json()["only_run"] == get.run


@pytest.mark.parametrize(
    ("planned", "seconds", "alarm", "state"),
    [
        (2, 9_999, False, "finished"),
        (9, 0, False, "running"),
        (9, 9_999, False, "stale"),
        (9, 9_999, True, "stopped"),
    ],
)
def test_the_state_of_a_run_is_read_from_its_log_and_its_clock(recording, made, planned, seconds, alarm, state):
    recording.settings({"credit": "stages", "meta_policy": True, "steps": planned})
    if alarm:
        with (recording.folder / "metrics.jsonl").open("a") as log:
            log.write(json.dumps({"step": 2, "alarm": "the run is lost"}) + "\n")
    age(recording.folder, seconds)

    with made.viewer(recording.folder) as client:
        (card,) = cards(client).values()

    assert card["state"] == state
    assert (card["step"], card["steps"], card["alarms"]) == (2, planned, int(alarm))


def test_a_card_says_what_the_log_says(recording, looked_at):
    recording.add()

    with looked_at() as get:
        card = get("")["card"]

    assert card["recipe"] == "SS-GRPO + meta-policy"
    assert card["scores"] == dict.fromkeys(("plan", "research", "review", "answer"), 0.25)
    assert (card["scored_at"], card["lessons"], card["seconds"], card["recorded"]) == (0, 2, 2.0, 3)


def test_curves_have_a_point_for_each_step_that_has_a_number(recording, looked_at):
    with looked_at() as get:
        figures = {figure["key"]: figure for figure in get("/curves")["figures"]}

    truth, judge = figures["judged.plan"]["curves"]
    assert (truth["name"], truth["x"], truth["y"]) == ("truth", [1.0, 2.0], [0.5, 0.5])
    assert judge["dashed"]
    # The judge scored no review in this log, and nothing was updated.
    assert [curve["name"] for curve in figures["judged.review"]["curves"]] == ["truth"]
    assert figures["policy.kl"]["curves"] == []
    assert figures["held_out.answer"]["curves"][0]["y"] == [0.25]


def test_runs_side_by_side_differ_in_settings_and_share_their_figures(tmp_path, made):
    for name, credit in (("a", "stages"), ("b", "terminal")):
        run = made.Recording(tmp_path / name)
        run.settings({"credit": credit, "out": name, "loss": {"kl": 0.1 if name == "a" else 0.2}, "steps": 2})

    with made.viewer(tmp_path) as client:
        runs = [card["id"] for card in cards(client).values()]
        found = client.get("/api/compare", params={"run": runs}).json()

    by_name = dict(zip((card["name"] for card in found["runs"]), range(2), strict=True))
    differs = {one["key"]: one["values"][by_name["a"]] for one in found["differs"]}
    assert differs == {"credit": '"stages"', "loss.kl": "0.1"}
    figure = next(figure for figure in found["figures"] if figure["key"] == "judged.plan:truth")
    assert [curve["run"] for curve in figure["curves"]] == runs


def test_one_run_alone_is_no_comparison(recording, looked_at):
    with looked_at() as get:
        answer = get.client.get("/api/compare", params={"run": [get.run, get.run]})

    assert (answer.status_code, "two training runs" in answer.json()["message"]) == (404, True)


def test_an_ablation_is_told_as_numbers(tmp_path, made):
    spread = Spread(mean=0.5, low=0.4, high=0.6)
    result = RecipeResult(
        name="whole",
        title="SS-GRPO + meta-policy",
        seeds=(0, 1),
        answer=spread,
        all_stages=spread,
        valid=spread,
        against_baseline=spread,
        steps_to_baseline=None,
        seconds=3.0,
        curve=(CurvePoint(step=0, answer=spread),),
    )
    ablation = Ablation(steps=8, command="rubricem ablate", results=(result,))
    (tmp_path / "ablation.json").write_text(ablation.model_dump_json())

    with made.viewer(tmp_path) as client:
        (card,) = cards(client).values()
        told = client.get(f"/api/runs/{card['id']}/ablation").json()
        no_curves = client.get(f"/api/runs/{card['id']}/curves")

    assert (card["kind"], card["state"], card["scores"]["answer"]) == ("ablation", "finished", 0.5)
    assert told["results"][0]["curve"][0]["answer"]["high"] == 0.6
    assert no_curves.status_code == 404


def test_a_run_that_begins_appears_and_one_that_is_removed_goes(tmp_path, made):
    with made.viewer(tmp_path) as client:
        nothing = cards(client)
        run = made.Recording(tmp_path / "new")
        there = cards(client)
        (run.folder / "metrics.jsonl").unlink()
        gone = client.get(f"/api/runs/{there['new']['id']}")

    assert nothing == {}
    assert gone.status_code == 404


@pytest.mark.parametrize("name", ["checkpoints", "model", "record", ".hidden", "one/two/three/four"])
def test_a_folder_that_holds_no_runs_of_its_own_is_not_looked_into(tmp_path, made, name):
    made.Recording(tmp_path / name)

    with made.viewer(tmp_path) as client:
        assert cards(client) == {}


def test_a_link_is_not_followed(tmp_path, made):
    made.Recording(tmp_path / "elsewhere" / "run")
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)

    with made.viewer(tmp_path / "shown") as client:
        assert cards(client) == {}


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="there is no folder"):
        RunShelf.open(tmp_path / "none")


@pytest.mark.parametrize("path", ["/api/runs/unknown", "/api/runs/unknown/state", "/api/runs/unknown/bank"])
def test_an_unknown_run_is_said_to_be_missing(recording, looked_at, path):
    with looked_at() as get:
        answer = get.client.get(path)

    assert (answer.status_code, "no run" in answer.json()["message"]) == (404, True)
