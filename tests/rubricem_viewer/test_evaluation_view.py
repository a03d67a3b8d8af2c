"""An evaluation in the viewer: its numbers beside the paper's, each example, and judges that disagree."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.evals import eval_app

EXAMPLES = "/evaluation/examples"


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
def get(copy, serve):
    return serve(copy)


def test_the_numbers_come_with_their_interval_and_how_many_were_answered(get):
    card, view = get("")["card"], get("/evaluation")

    (score,) = view["scores"]
    assert (card["kind"], card["state"], card["step"], card["steps"]) == ("evaluation", "finished", 3, 3)
    assert (card["scores"]["answer"], score["score"]) == (1.0, 1.0)
    assert (view["answered"], view["complete"], view["endings"]) == (3, True, {"answered": 3})
    # Three answers of 1.0: every draw of them has the mean 1.0.
    assert (score["spread"]["low"], score["spread"]["high"]) == (1.0, 1.0)
    assert score["spread"]["method"]


def test_examples_are_listed_narrowed_by_words_and_shown_whole(get):
    page = get(EXAMPLES)
    first = page["rows"][0]
    example = get(f"{EXAMPLES}/{first['id']}")

    assert (page["total"], len(page["rows"]), first["scores"]) == (3, 3, [1.0])
    assert get(EXAMPLES, q=first["example"])["matched"] == 1
    assert get(EXAMPLES, q="nothing of the kind")["matched"] == 0
    assert example["row"] == first
    assert [one["kind"] for one in example["trajectory"]["elements"]][-1] == "answer"


@pytest.mark.parametrize("name", ["0.bm90aGluZw", "x", "0.%%%", "9999999.bm90aGluZw", "0.\u00e9"])
def test_a_missing_example_is_named_as_missing(get, name):
    assert get(f"{EXAMPLES}/{name}", expect=404)


def test_a_half_written_answer_is_skipped(copy, get):
    answers = copy / "answers.jsonl"
    answers.write_bytes(answers.read_bytes()[:-30])
    (copy / "scores.json").unlink()

    view = get("/evaluation")

    assert (view["answered"], view["scores"]) == (2, [])
    assert "rescore" in view["note"]


@pytest.mark.parametrize(
    ("order", "places"), [("disagreement", [1, 2, 0]), ("worst", [1, 2, 0]), ("best", [0, 2, 1]), ("id", [0, 1, 2])]
)
def test_examples_are_ordered_by_the_first_judges_score_or_by_what_judges_disagree_on(copy, get, order, places):
    scores = json.loads((copy / "scores.json").read_text())
    (own,) = scores["judges"]
    names = sorted(own["per_example"])
    first = own | {"per_example": dict(zip(names, (1.0, 0.25, 0.5), strict=True))}
    # The second judge gives 1 to each, so they differ by 0, 0.75 and 0.5.
    (copy / "scores.json").write_text(json.dumps(scores | {"judges": [first, own | {"judge": "another"}]}))

    rows = get(EXAMPLES, sort=order)["rows"]

    assert [row["example"] for row in rows] == [names[place] for place in places]
    assert sorted(row["disagreement"] for row in rows) == [0.0, 0.5, 0.75]


def test_a_judges_replies_stand_beside_the_example_and_are_truncated(copy, get):
    name = json.loads((copy / "answers.jsonl").read_text().splitlines()[0])["id"]
    verdict = {"benchmark": "almanac", "mode": "ours", "id": name, "epoch": 0, "judge": "openai:m", "question": "q1"}
    lines = [verdict | {"asked": "ab", "replies": ["<b>yes</b>" * 2_000]}, {"not": "a verdict"}]
    (copy / "verdicts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    (row,) = get(EXAMPLES, q=name)["rows"]
    (reply,) = get(f"{EXAMPLES}/{row['id']}")["replies"]

    assert (reply["judge"], reply["question"], len(reply["replies"][0])) == ("openai:m", "q1", 8_000)
    assert "1 lines" in get("")["notes"][0]


def test_a_failed_attempt_stands_until_a_later_one_succeeds(copy, get):
    answers = copy / "answers.jsonl"
    first, *others = answers.read_text().splitlines()
    failed = {name: json.loads(first)[name] for name in ("benchmark", "mode", "id", "epoch")} | {"failure": "lost"}
    answers.write_text("\n".join((json.dumps(failed), *others, "")))
    before = get(EXAMPLES)["rows"][0]
    with answers.open("a") as log:
        log.write(first + "\n")
    after = get(EXAMPLES)["rows"][0]
    answers.write_text(first + "\n")

    assert (before["failure"], after["failure"], after["id"]) == ("lost", "", before["id"])
    assert get(EXAMPLES)["total"] == 1


def test_an_answer_from_a_file_has_no_trajectory(copy, get):
    answers = copy / "answers.jsonl"
    first = json.loads(answers.read_text().splitlines()[0])
    del first["trajectory"]
    answers.write_text(json.dumps(first | {"given": "12 m"}) + "\n")

    (row,) = get(EXAMPLES)["rows"]
    example = get(f"{EXAMPLES}/{row['id']}")

    assert (row["answer"], example["given"], example["trajectory"]) == ("12 m", "12 m", None)


def test_the_papers_rows_stand_beside_a_benchmark_of_the_paper(copy, get):
    for name in ("run.json", "scores.json"):
        text = (copy / name).read_text().replace('"benchmark": "almanac"', '"benchmark": "healthbench"')
        text = text.replace('"title": "Almanac"', '"title": "HealthBench"')
        (copy / name).write_text(text.replace('"judge": "none"', '"judge": "openai:kind"'))

    (table,) = get("/evaluation")["published"]

    *_, own = table["rows"]
    assert "judged by kind" in own["flags"]
    assert get("")["card"]["title"].endswith(", judged by kind")
    assert own["values"][table["columns"].index("HealthBench")] == 100.0
    assert any(row["system"].startswith("RubricEM") for row in table["rows"])


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("run.json", lambda text: text.replace('"version": 1', '"version": 9'), "version 9"),
        ("scores.json", lambda _: "{", "rescore"),
    ],
)
def test_a_file_that_cannot_be_read_makes_the_evaluation_unreadable(copy, get, name, change, said):
    (copy / name).write_text(change((copy / name).read_text()))

    (card,) = get.cards.values()

    assert (card["state"], said in card["problem"]) == ("unreadable", True)


def test_an_evaluation_stands_beside_the_other_runs_of_its_benchmark(copy, serve, tmp_path):
    other = shutil.copytree(copy, tmp_path / "weaker")
    scores = json.loads((other / "scores.json").read_text())
    first, *_ = scores["judges"][0]["per_example"]
    scores["judges"][0]["per_example"][first] = 0.0
    (other / "scores.json").write_text(json.dumps(scores))
    (shutil.copytree(copy, tmp_path / "broken") / "scores.json").write_text("{")
    get = serve(tmp_path)
    run = get.cards["run"]["id"]

    (gap,) = get.client.get(f"/api/runs/{run}/evaluation").json()["comparisons"]

    # One of three questions is answered worse by the other run: 1/3.
    assert (round(gap["difference"], 4), gap["n"], gap["better"], gap["worse"]) == (0.3333, 3, 1, 0)
    assert gap["low"] <= gap["difference"] <= gap["high"]
    assert gap["second"].endswith("(weaker)")
