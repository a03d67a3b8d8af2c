"""`probe`, `calibrate` and `eval` in other stages."""

import json

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_env.domain.judgement import RubricScore
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.judge.trust.length_bias import PADDING, pad_answer
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelServer
from tests.letters import LETTER, POLITE
from tests.rubricem_viewer.recorded_stages import record_run
from tests.scaffolds import EIGHT, SCAFFOLDS, WRITING, attempt_of

POLITE_FINAL = POLITE.model_copy(update={"stage": "final"})


def ran(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments), "--json"])


@pytest.mark.parametrize("scaffold", SCAFFOLDS, ids=lambda scaffold: scaffold.name)
def test_padding_goes_into_the_answer_of_any_set(scaffold):
    padded = pad_answer(attempt_of(scaffold), times=1)
    assert padded.segments[-1].text.endswith(f"{PADDING}</{scaffold.answer_tag}>")


@pytest.fixture
def examples(tmp_path):
    def write(scaffold):
        rubric = {"stage": scaffold.last, "title": "Polite", "description": "Thanks for the tea.", "weight": 1}
        rows = [
            {"trajectory": attempt_of(scaffold, answer=text).model_dump(mode="json"), "rubric": rubric, "label": label}
            for text, label in (("Thanks for the tea.", 2), ("No.", 0))
        ]
        (tmp_path / "examples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path / "examples.jsonl"

    return write


def test_a_judge_of_letters_is_calibrated(examples):
    done = ran("calibrate", examples(WRITING.scaffold))
    assert done.exit_code == 0, done.output
    assert {*json.loads(done.output)["by_stage"]} == {"final"}


def test_attempts_of_a_set_of_ones_own_ask_for_its_name(examples):
    done = ran("calibrate", examples(EIGHT))
    assert "an attempt was written in the stages closed_1, closed_2" in str(done.exception)
    assert "name its stage set with --scaffold" in str(done.exception)


def test_a_run_of_letters_is_probed(tmp_path):
    record_run(
        tmp_path,
        WRITING.scaffold,
        rubric_scores=(RubricScore.whole(POLITE_FINAL.id, 1, "so"),),
        rubrics=(POLITE_FINAL,),
    )
    done = ran("probe", tmp_path, "--sample", "2")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert (found["attempts"], found["padding_gain"]) == (2, 0.0)


def test_a_benchmark_in_other_stages_is_refused_with_the_way_out():
    done = ran("eval", "simpleqa", "--scaffold", "writing", "--policy", "openai:m@http://127.0.0.1:1/v1", "--dry-run")
    assert "simpleqa is answered in the stages of deep_research" in str(done.exception)
    assert "rubricem eval own" in str(done.exception)


def test_own_questions_are_answered_in_the_stages_of_a_task(tmp_path):
    asked = {"question": "Write to Ada.", "answer": "tea", "answer_format": "long"}
    (tmp_path / "own.jsonl").write_text(json.dumps(asked))
    with serve_loopback(ModelServer(lambda request: LETTER)) as url:
        model = ("--policy", f"openai:m@{url}", "--no-probe", "--out", tmp_path / "run")
        done = ran("eval", "own", "--data", tmp_path / "own.jsonl", "--scaffold", "writing", "--tools", "none", *model)
        again = ran("eval", "own", "--data", tmp_path / "own.jsonl", "--tools", "none", *model)

    assert done.exit_code == 0, done.output
    (line,) = (tmp_path / "run" / "answers.jsonl").read_text().splitlines()
    assert Trajectory.model_validate(json.loads(line)["trajectory"], strict=False).scaffold == WRITING.scaffold
    assert json.loads((tmp_path / "run" / "run.json").read_text())["agent"]["scaffold"] == "writing"
    assert "scaffold" in str(again.exception)


def test_a_task_whose_tool_is_absent_is_refused(tmp_path):
    (tmp_path / "own.jsonl").write_text('{"question": "How long?", "answer": "80"}')
    model = ("--policy", "openai:m@http://127.0.0.1:1/v1", "--no-probe", "--out", tmp_path / "run")

    done = ran(
        "eval", "own", "--data", tmp_path / "own.jsonl", "--scaffold", "data_analysis", "--tools", "none", *model
    )

    assert "the stages data_analysis call run_sql" in str(done.exception)
    assert 'tables = "FOLDER"' in str(done.exception)
