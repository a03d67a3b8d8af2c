"""Judging the answers of another run: they are taken as they are, with their examples and epochs."""

import asyncio

import pytest

from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.evals import run_evaluation
from rubricem_env.domain.errors import ConfigError, UsageError


@pytest.fixture
def strict(run, make_config, tmp_path):
    """Settings of a strict run on the answers of an official one of two examples by the scripted policy."""
    run(make_config("simpleqa", policy="scripted", limit=2, epochs=2))

    def make(**changes):
        given = {"policy": "scripted", "out": tmp_path / "strict", "answers_from": tmp_path / "run", **changes}
        return make_config("simpleqa", "strict", **given)

    return make


def test_examples_epochs_and_policy_are_those_of_the_run_and_nothing_is_answered(run, make_config, tmp_path):
    run(make_config("simpleqa", limit=2, epochs=2))

    config = make_config(
        "simpleqa", "strict", policy="scripted", out=tmp_path / "strict", answers_from=tmp_path / "run"
    )
    other = run(config)

    assert (other.runner.answered, other.runner.judged, other.scores.is_complete) == (0, 4, True)
    assert other.scores.manifest.agent == plan_run(make_config("simpleqa")).manifest.agent
    assert other.scores.manifest.inputs.subset == "simple-evals sample of 2, seed 0"


def test_the_same_command_resumes(run, strict):
    first = run(strict())

    # What was judged before is looked up in the log, and counted as judged again.
    assert run(strict()).scores.judges == first.scores.judges


def test_some_of_the_examples_can_be_chosen_and_others_are_refused(strict):
    assert plan_run(strict(limit=1)).manifest.inputs.ids == ("6",)

    with pytest.raises(UsageError, match=r"1 of the 3 examples .* Leave --limit, --subset and --ids out"):
        plan_run(strict(limit=3))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            {"policy": "openai:m@http://127.0.0.1:1/v1"},
            "--policy is openai:m.* were made with scripted.* Leave --policy",
        ),
        ({"style": "react"}, "--style is react"),
        ({"epochs": 3}, "--epochs is 3; the answers of .* were made with 2"),
        ({"stage": "answers"}, "Leave --stage answers out"),
    ],
)
def test_options_that_contradict_the_judged_run_are_refused(strict, change, named):
    with pytest.raises(ConfigError, match=named):
        plan_run(strict(**change))


def test_answers_of_another_benchmark_or_to_another_file_are_refused(make_config, strict, tmp_path):
    with pytest.raises(ConfigError, match="is a run of simpleqa; its answers cannot be judged as those of webwalkerqa"):
        plan_run(make_config("webwalkerqa", policy="scripted", answers_from=tmp_path / "run"))

    (tmp_path / "other.csv").write_text("metadata,problem,answer\n{},q,a\n")
    with pytest.raises(UsageError, match="Give that file with --data"):
        plan_run(strict(data=str(tmp_path / "other.csv")))


def test_a_run_that_is_unfinished_is_judged_as_far_as_it_goes(run, make_config, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": 0, "answer": "yes"}\n')
    run(make_config("simpleqa", policy=f"file:{tmp_path / 'a.jsonl'}"))

    scores = run(
        make_config("simpleqa", "strict", policy="scripted", out=tmp_path / "s", answers_from=tmp_path / "run")
    ).scores

    assert (scores.answered, scores.expected, scores.failures) == (1, 8, {})


def test_a_policy_without_a_key_is_not_asked_for_one_where_only_verdicts_are_made(make_config, tmp_path):
    policy = "openai:gpt-4.1@https://api.openai.com/v1"
    config = make_config("simpleqa", policy=policy, stage="verdicts")

    finished = asyncio.run(run_evaluation(plan_run(config), {}))

    assert (finished.scores.answered, finished.runner.failures) == (0, [])
