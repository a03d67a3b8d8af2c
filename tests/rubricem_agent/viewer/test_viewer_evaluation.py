"""An evaluation in the viewer: its numbers beside the paper's, each example, and judges that disagree."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.evals import eval_app


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The almanac's expert on three questions, really run."""
    out = tmp_path_factory.mktemp("evaluation") / "almanac"
    result = CliRunner().invoke(eval_app, ["almanac", "--policy", "expert", "--limit", "3", "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture
def copy(folder, tmp_path):
    """The same evaluation, to be changed."""
    return shutil.copytree(folder, tmp_path / "run")


@pytest.fixture
def ask(folder, made):
    with made.viewer(folder) as client:
        run = client.get("/api/runs").json()["runs"][0]["id"]
        yield lambda path, **params: client.get(f"/api/runs/{run}{path}", params=params)


def test_the_card_has_the_number_and_how_many_were_answered(ask):
    card = ask("").json()["card"]

    assert (card["kind"], card["state"], card["step"], card["steps"]) == ("evaluation", "finished", 3, 3)
    assert card["scores"]["answer"] == 1.0


def test_the_numbers_come_with_their_interval(ask):
    view = ask("/evaluation").json()

    (score,) = view["scores"]
    assert (view["answered"], view["complete"], score["score"]) == (3, True, 1.0)
    assert score["low"] <= score["score"] <= score["high"]
    assert score["interval"]
    assert view["endings"] == [{"name": "answered", "count": 3}]


def test_examples_are_listed_and_one_is_told_whole(ask):
    page = ask("/evaluation/examples").json()
    example = ask(f"/evaluation/examples/{page['rows'][0]['id']}").json()

    assert (page["total"], len(page["rows"])) == (3, 3)
    assert page["rows"][0]["scores"] == [1.0]
    assert example["row"] == page["rows"][0]
    assert [one["kind"] for one in example["trajectory"]["elements"]][-1] == "answer"


def test_words_narrow_the_examples(ask):
    first = ask("/evaluation/examples").json()["rows"][0]

    assert ask("/evaluation/examples", q=first["example"]).json()["matched"] == 1
    assert ask("/evaluation/examples", q="nothing of the kind").json()["matched"] == 0


@pytest.mark.parametrize("name", ["0.bm90aGluZw", "x", "0.%%%", "9999999.bm90aGluZw", "0.\u00e9"])
def test_an_example_that_is_not_there_is_said_to_be_missing(ask, name):
    assert ask(f"/evaluation/examples/{name}").status_code == 404


def test_a_half_written_answer_is_passed_over(copy, made):
    answers = copy / "answers.jsonl"
    answers.write_bytes(answers.read_bytes()[:-30])
    (copy / "scores.json").unlink()

    with made.viewer(copy) as client:
        run = client.get("/api/runs").json()["runs"][0]["id"]
        view = client.get(f"/api/runs/{run}/evaluation").json()

    assert (view["answered"], view["scores"]) == (2, [])
    assert "rescore" in view["note"]


def test_judges_that_disagree_stand_first(copy, made):
    scores = json.loads((copy / "scores.json").read_text())
    names = sorted(scores["judges"][0]["per_example"])
    other = json.loads(json.dumps(scores["judges"][0])) | {"judge": "another"}
    other["per_example"] = dict(zip(names, (1.0, 0.25, 0.5), strict=True))
    scores["judges"].append(other)
    (copy / "scores.json").write_text(json.dumps(scores))

    with made.viewer(copy) as client:
        run = client.get("/api/runs").json()["runs"][0]["id"]
        rows = client.get(f"/api/runs/{run}/evaluation/examples", params={"sort": "disagreement"}).json()["rows"]

    assert [(row["example"], row["disagreement"]) for row in rows] == [
        (names[1], 0.75),
        (names[2], 0.5),
        (names[0], 0.0),
    ]


def test_a_manifest_of_a_newer_release_is_refused(copy, made):
    manifest = json.loads((copy / "run.json").read_text()) | {"version": 9}
    (copy / "run.json").write_text(json.dumps(manifest))

    with made.viewer(copy) as client:
        (card,) = client.get("/api/runs").json()["runs"]

    assert card["state"] == "unreadable"
    assert "version 9" in card["problem"]


def test_what_judges_replied_stands_beside_the_example(copy, made):
    name = json.loads((copy / "answers.jsonl").read_text().splitlines()[0])["id"]
    verdict = {"benchmark": "almanac", "mode": "ours", "id": name, "epoch": 0, "judge": "openai:m", "question": "q1"}
    lines = [verdict | {"asked": "ab", "replies": ["<b>yes</b>" * 2_000]}, {"not": "a verdict"}]
    (copy / "verdicts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    with made.viewer(copy) as client:
        run = client.get("/api/runs").json()["runs"][0]["id"]
        rows = client.get(f"/api/runs/{run}/evaluation/examples", params={"q": name}).json()["rows"]
        example = client.get(f"/api/runs/{run}/evaluation/examples/{rows[0]['id']}").json()
        notes = client.get(f"/api/runs/{run}").json()["notes"]

    (reply,) = example["replies"]
    assert (reply["judge"], reply["question"], len(reply["replies"][0])) == ("openai:m", "q1", 8_000)
    assert "1 lines" in notes[0]


def test_a_failed_attempt_stands_until_it_is_made_good(copy, made):
    answers = copy / "answers.jsonl"
    first, *others = answers.read_text().splitlines()
    failed = json.loads(first)
    failed = {name: failed[name] for name in ("benchmark", "mode", "id", "epoch")} | {"failure": "no network"}
    answers.write_text("\n".join((json.dumps(failed), *others, "")))

    with made.viewer(copy) as client:
        run = client.get("/api/runs").json()["runs"][0]["id"]
        before = client.get(f"/api/runs/{run}/evaluation/examples").json()["rows"][0]
        with answers.open("a") as log:
            log.write(first + "\n")
        after = client.get(f"/api/runs/{run}/evaluation/examples").json()["rows"][0]
        answers.write_text(first + "\n")
        cut = client.get(f"/api/runs/{run}/evaluation/examples").json()

    assert (before["failure"], after["failure"], after["id"]) == ("no network", "", before["id"])
    assert cut["total"] == 1


def test_an_answer_from_elsewhere_has_no_trajectory(copy, made):
    answers = copy / "answers.jsonl"
    first = json.loads(answers.read_text().splitlines()[0])
    del first["trajectory"]
    answers.write_text(json.dumps(first | {"given": "12 m"}) + "\n")

    with made.viewer(copy) as client:
        run = client.get("/api/runs").json()["runs"][0]["id"]
        row = client.get(f"/api/runs/{run}/evaluation/examples").json()["rows"][0]
        example = client.get(f"/api/runs/{run}/evaluation/examples/{row['id']}").json()

    assert (row["answer"], example["given"], example["trajectory"]) == ("12 m", "12 m", None)


def test_the_paper_s_rows_stand_beside_a_benchmark_of_the_paper(copy, made):
    for name in ("run.json", "scores.json"):
        path = copy / name
        path.write_text(path.read_text().replace('"benchmark": "almanac"', '"benchmark": "healthbench"'))

    with made.viewer(copy) as client:
        run = client.get("/api/runs").json()["runs"][0]["id"]
        (table,) = client.get(f"/api/runs/{run}/evaluation").json()["published"]

    own = [row for row in table["rows"] if row["own"]]
    cells = {cell["column"]: cell["value"] for cell in own[0]["cells"]}
    assert (len(own), cells["HealthBench"]) == (1, 100.0)
    assert any(row["system"].startswith("RubricEM") for row in table["rows"])


def test_scores_that_cannot_be_read_are_said_to_be(copy, made):
    (copy / "scores.json").write_text("{")

    with made.viewer(copy) as client:
        (card,) = client.get("/api/runs").json()["runs"]

    assert (card["state"], "rescore" in card["problem"]) == ("unreadable", True)


def test_a_training_run_is_no_evaluation(recording, looked_at):
    with looked_at() as get:
        assert "no evaluation" in get("/evaluation", expect=404)["message"]
