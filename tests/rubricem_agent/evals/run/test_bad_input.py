"""What users and judges get wrong: one sentence each, one example each, never a number out of thin air."""

import json
from pathlib import Path

import pytest

from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_env.domain.errors import ConfigError, FileFormatError, UsageError
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelReply, ModelServer


def given(path: Path, *answers: str) -> str:
    lines = [json.dumps({"id": str(number), "answer": answer}) for number, answer in enumerate(answers)]
    path.write_text("\n".join(lines) + "\n")
    return f"file:{path}"


@pytest.mark.parametrize(
    ("name", "named"), [("criteria", "no criteria in the file of --criteria"), ("references", "no reference article")]
)
def test_only_the_tasks_that_are_run_need_criteria_and_a_reference(make_config, tmp_path, name, named):
    config = make_config("drb")
    lines = getattr(config, name).read_text().splitlines()
    path = tmp_path / "shorter.jsonl"
    path.write_text("\n".join(line for line in lines if json.loads(line)["id"] != 53))
    config = config.model_copy(update={name: path})

    assert plan_run(config.model_copy(update={"limit": 2})).manifest.inputs.ids == ("51", "52")
    with pytest.raises(FileFormatError, match=f"example 53 of .* has {named}.* --limit or --ids"):
        plan_run(config)


def test_an_empty_answer_is_excluded_where_the_official_scorer_excludes_it(run, make_config, tmp_path):
    policy = given(tmp_path / "a.jsonl", "", *["yes"] * 7)

    judged = run(make_config("deepsearchqa", policy=policy)).scores.headline

    # Of the seven left, answers 3 and 6 are the single ones.
    assert (judged.graded, judged.excluded) == (7, {"empty_response": 1})
    assert judged.score == pytest.approx(2 / 7)
    assert judged.worst == pytest.approx(2 / 8)


def test_strictly_an_empty_answer_counts_as_wrong(run, make_config, tmp_path):
    policy = given(tmp_path / "a.jsonl", "", *["yes"] * 7)

    judged = run(make_config("deepsearchqa", "strict", policy=policy)).scores.headline

    assert (judged.graded, judged.score) == (8, pytest.approx(2 / 8))


def test_an_answer_of_two_megabytes_counts_as_too_long_and_is_not_judged(run, make_config, judge_app, tmp_path):
    policy = given(tmp_path / "a.jsonl", "x" * 2_000_000, *["yes"] * 7)

    scores = run(make_config("webwalkerqa", policy=policy)).scores

    assert scores.found == {"given answer": 7, "answer too long": 1}
    assert scores.headline.excluded == {"there is no prediction": 1}
    assert max(len(asked.prompt) for asked in judge_app.asked) < 10_000


@pytest.mark.parametrize(
    ("name", "mode", "excluded", "score"),
    [
        ("webwalkerqa", "official", {"the judge gave no grade": 8}, None),
        ("webwalkerqa", "strict", {}, 0.0),
        ("simpleqa", "official", {"the judge gave no letter": 8}, None),
        # Strictly B.
        ("simpleqa", "strict", {}, 0.0),
        ("deepsearchqa", "official", {"invalid_rater": 8}, None),
        ("deepsearchqa", "strict", {}, 0.0),
        ("healthbench", "official", {"none of 1 judge replies holds a verdict": 8}, None),
        ("drb", "strict", {}, 0.0),
    ],
)
def test_a_judge_that_replies_i_cannot_gives_no_number_but_the_modes_own(run, make_config, name, mode, excluded, score):
    with serve_loopback(ModelServer(lambda asked: "I cannot.")) as url:
        scores = run(make_config(name, mode, judges=(f"openai:refuser@{url}/v1",))).scores

    assert scores.is_complete
    assert scores.headline.excluded == excluded
    assert scores.headline.score == score
    assert scores.headline.unreadable > 0 or name == "drb"


def test_an_outage_leaves_examples_ungraded_and_a_resumed_run_grades_them(run, make_config):
    app = ModelServer(lambda asked: ModelReply("down", status=503) if is_down else "A")
    with serve_loopback(app) as url:
        is_down = True
        broken = run(make_config("simpleqa", judges=(f"openai:judge@{url}/v1",)))
        is_down = False
        mended = run(make_config("simpleqa", judges=(f"openai:judge@{url}/v1",)))

    assert not broken.scores.is_complete
    assert broken.scores.headline.score is None
    assert sum(broken.scores.headline.ungraded.values()) == 8
    assert len(broken.runner.failures) == 8

    assert mended.scores.is_complete
    assert mended.scores.headline.score == 1.0


def test_one_refused_question_spoils_its_own_example_alone(run, make_config):
    def answer(asked):
        return ModelReply("no", status=400) if "question 3," in asked.prompt else "A"

    with serve_loopback(ModelServer(answer)) as url:
        scores = run(make_config("simpleqa", judges=(f"openai:judge@{url}/v1",))).scores

    assert (scores.headline.graded, sum(scores.headline.ungraded.values()), scores.headline.score) == (7, 1, 1.0)


@pytest.mark.parametrize(
    ("change", "named", "way_out"),
    [
        ({"mode": "strict"}, "the mode official; refusing to resume with strict", "--answers-from"),
        (
            {"judges": ("openai:other@http://127.0.0.1:1/v1",)},
            r"the judge openai:judge-of-tests@\S+; refusing to resume with openai:other@http://127.0.0.1:1/v1,",
            "--answers-from",
        ),
        (
            {"judges": ("openai:judge-of-tests@http://127.0.0.1:1/v1",)},
            r"the judge openai:judge-of-tests@\S+; refusing to resume with openai:judge-of-tests@http://127.0.0.1:1/v1,",
            "--answers-from",
        ),
        ({"limit": 3}, "the subset", "another --out"),
        ({"epochs": 2}, "the number of epochs 1", "another --out"),
    ],
)
def test_a_run_is_not_resumed_as_another_one_and_the_way_out_is_named(run, make_config, change, named, way_out):
    run(make_config("simpleqa"))

    with pytest.raises(UsageError, match=named) as refusal:
        run(make_config("simpleqa", **change))

    assert way_out in str(refusal.value)


def test_a_budget_stops_the_run_and_a_larger_one_resumes_it(run, make_config, judge_url):
    priced = {"judges": (f"openai:gpt-4.1@{judge_url}",), "budget": 0.0175}

    stopped = run(make_config("simpleqa", **priced))

    # A call reserves $0.016848, nearly all of it, and uses $0.000346: each waits for the one before it.
    assert "limit" in stopped.runner.stopped
    assert 0 < stopped.scores.headline.graded < 8
    assert stopped.scores.dollars < 0.0175

    assert run(make_config("simpleqa", **priced | {"budget": 5.0})).scores.headline.score == 0.5


def test_examples_that_training_has_seen_are_refused_or_dropped(make_config, tmp_path):
    seen = tmp_path / "train.jsonl"
    seen.write_text(json.dumps({"question": " Invented question 2, with a comma?  "}) + "\n")

    with pytest.raises(UsageError, match="1 of 8 examples are in"):
        plan_run(make_config("simpleqa", seen=(seen,)))

    manifest = plan_run(make_config("simpleqa", seen=(seen,), drop_seen=True)).manifest
    assert (len(manifest.inputs.ids), manifest.inputs.left_out) == (7, ("2",))


def test_a_mode_that_dr_tulu_never_ran_is_refused(make_config):
    with pytest.raises(ConfigError, match="no mode drtulu"):
        plan_run(make_config("deepsearchqa", "drtulu"))


def test_a_judge_by_rules_cannot_judge_a_benchmark(make_config):
    with pytest.raises(ConfigError, match="judged by models"):
        plan_run(make_config("simpleqa", judges=("rules",)))
