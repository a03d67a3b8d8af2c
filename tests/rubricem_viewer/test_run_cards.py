"""Runs in the viewer: the list and its states, curves, and several side by side."""

import json
import os
import time

import pytest

from rubricem_env.domain.errors import FileFormatError
from rubricem_records.runs.trainer_errors import ERRORS_FILE, note_failure
from rubricem_viewer.shelf import RunShelf


def age(folder, seconds):
    """Make every file of a folder that old."""
    then = time.time() - seconds
    for path in [*folder.rglob("*")]:
        os.utime(path, (then, then))


def test_a_folder_of_runs_is_listed_with_the_latest_first(tmp_path, made, serve):
    for name, old in (("b", 3_000), ("deep/er/a", 1_000), ("c", 2_000)):
        age(made.Recording(tmp_path / name).folder, old)

    found = serve(tmp_path).client.get("/api/runs").json()

    assert [card["name"] for card in found["runs"]] == ["deep/er/a", "c", "b"]
    assert found["only_run"] is None


def test_a_run_s_own_folder_is_opened_at_once_and_its_id_lasts(recording, get, serve):
    assert get.client.get("/api/runs").json()["only_run"] == get.run
    assert serve(recording.folder).client.get(f"/api/runs/{get.run}").status_code == 200


@pytest.mark.parametrize(
    ("planned", "seconds", "warning", "state"),
    [(2, 9_999, False, "finished"), (9, 0, False, "running"), (9, 9_999, False, "stale"), (9, 9_999, True, "stopped")],
)
def test_the_state_of_a_run_is_read_from_its_log_and_its_clock(recording, get, planned, seconds, warning, state):
    recording.settings({"credit": "stages", "meta_policy": True, "steps": planned})
    if warning:
        with (recording.folder / "metrics.jsonl").open("a") as log:
            log.write(json.dumps({"step": 2, "warning": "the run is lost"}) + "\n")
    age(recording.folder, seconds)

    card = get("")["card"]

    assert card["state"] == state
    assert (card["step"], card["steps"], card["warnings"]) == (2, planned, int(warning))


def test_a_card_has_the_numbers_of_the_log(recording, get):
    recording.add()

    card = get("")["card"]

    assert card["recipe"] == "SS-GRPO + meta-policy"
    assert card["scores"] == dict.fromkeys(("plan", "research", "review", "answer"), 0.25)
    assert (card["scored_at"], card["lessons"], card["seconds"], card["recorded"]) == (0, 2, 2.0, 3)


def test_curves_have_a_point_for_each_step_that_has_a_number(recording, get):
    figures = {figure["key"]: figure for figure in get("/curves")["figures"]}

    truth, judge = figures["judged.plan"]["curves"]
    assert (truth["name"], truth["x"], truth["y"]) == ("truth", [1.0, 2.0], [0.5, 0.5])
    assert judge["dashed"]
    # The judge scored no review in this log, and nothing was updated.
    assert [curve["name"] for curve in figures["judged.review"]["curves"]] == ["truth"]
    assert figures["policy.kl"]["curves"] == []
    assert figures["held_out.answer"]["curves"][0]["y"] == [0.25]


def test_what_is_called_true_is_what_is_known(recording, get):
    told = {figure["section"]: figure["note"] for figure in get("/curves")["figures"]}
    assert told["Held-out quality"].startswith("True quality, by the almanac,")
    assert "Judge against truth" in told

    recording.log(true={}, held_out_by="judge")

    told = {figure["section"]: figure["note"] for figure in get("/curves")["figures"]}
    assert told["Held-out quality"].startswith("The judge's scores on questions")
    assert "No truth is known" in told["The judge's scores"]
    assert "Judge against truth" not in told


def test_a_run_whose_trainer_failed_shows_its_error_at_once_and_not_after_the_next_start(recording, get):
    (recording.folder / "metrics.jsonl").write_text("")
    note_failure(recording.folder, "the judge at judge.example is away.\nTry again.")

    found = get("")

    assert found["card"]["state"] == "stopped"
    assert found["card"]["problem"] == "The trainer failed: the judge at judge.example is away. Try again."
    (recording.folder / ERRORS_FILE).write_text("... step 0: 1 of 2\n")
    assert (get("")["card"]["state"], get("")["card"]["problem"]) == ("running", "")


@pytest.mark.parametrize(("records", "said"), [(True, "No step has recorded"), (False, "train with record=true")])
def test_a_run_that_records_is_not_told_to_record(recording, get, records, said):
    recording.settings({"steps": 9, "record": records})

    (note,) = get("")["notes"]

    assert said in note


def test_runs_side_by_side_differ_in_settings_and_share_their_figures(tmp_path, made, serve):
    for name, credit, kl in (("a", "stages", 0.1), ("b", "answer_only", 0.2)):
        run = made.Recording(tmp_path / name)
        run.settings({"credit": credit, "out": name, "loss": {"kl": kl}, "steps": 2})
        run.add(group={"judge": f"judge {name}"})

    get = serve(tmp_path)
    runs = [get.cards[name]["id"] for name in ("a", "b")]
    found = get.client.get("/api/compare", params={"run": runs}).json()

    assert found["differs"] == {"credit": ['"stages"', '"answer_only"'], "loss.kl": ["0.1", "0.2"]}
    assert (found["policies"], found["judges"]) == (["scripted", "scripted"], ["judge a", "judge b"])
    assert "different judges" in found["note"]
    figure = next(figure for figure in found["figures"] if figure["key"] == "judged.plan:truth")
    assert [curve["run"] for curve in figure["curves"]] == runs


def test_one_run_alone_is_no_comparison(recording, get):
    answer = get.client.get("/api/compare", params={"run": [get.run, get.run]})

    assert (answer.status_code, "two training runs" in answer.json()["message"]) == (404, True)


def test_a_run_that_begins_appears_and_one_that_is_removed_goes(tmp_path, made, serve):
    get = serve(tmp_path)
    nothing = get.cards
    run = made.Recording(tmp_path / "new")
    there = get("")["card"]["name"]
    (run.folder / "metrics.jsonl").unlink()

    assert (nothing, there) == ({}, "new")
    assert "no run" in get("", expect=404)["message"]


@pytest.mark.parametrize("name", ["checkpoints", "model", "record", ".hidden", "one/two/three/four"])
def test_a_folder_that_holds_no_runs_of_its_own_is_not_looked_into(tmp_path, made, serve, name):
    made.Recording(tmp_path / name)

    assert serve(tmp_path).cards == {}


def test_a_link_is_not_followed(tmp_path, made, serve):
    made.Recording(tmp_path / "elsewhere" / "run")
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)

    assert serve(tmp_path / "shown").cards == {}


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="there is no folder"):
        RunShelf(tmp_path / "none", open_bank=None)
