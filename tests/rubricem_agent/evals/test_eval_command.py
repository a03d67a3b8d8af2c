import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.evals import INCOMPLETE, eval_app
from rubricem_env.domain.errors import MissingExtraError

SAMPLE = Path(__file__).parents[2] / "samples" / "benchmarks" / "healthbench.synthetic.jsonl"
RUNNER = CliRunner()


def call(*arguments: object):
    return RUNNER.invoke(eval_app, [str(each) for each in arguments])


@pytest.mark.parametrize("words", [("almanac",), ("run", "almanac")])
def test_the_almanac_runs_offline_by_its_name_with_and_without_the_word_run(tmp_path, words):
    result = call(*words, "--policy", "expert", "--limit", 3, "--out", tmp_path)

    assert result.exit_code == 0
    assert "100.0" in result.output
    assert (tmp_path / "report.html").exists()


def test_a_dry_run_counts_calls_and_money_and_writes_nothing(tmp_path):
    result = call("healthbench", "--data", SAMPLE, "--any-version", "--dry-run", "--out", tmp_path / "run")

    # 3 + 4 + 5 + 6 items, twice.
    assert " 36 " in result.output
    assert "nothing was asked" in result.output
    assert not (tmp_path / "run").exists()


def test_report_prints_json_and_writes_a_page(tmp_path):
    call("almanac", "--policy", "expert", "--limit", 3, "--out", tmp_path / "run")

    result = call("report", tmp_path / "run", "--json", "--html", tmp_path / "r.html")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["runs"][0]["judges"][0]["score"] == 1.0
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def test_rescore_says_that_the_numbers_are_the_same(tmp_path):
    call("almanac", "--policy", "expert", "--limit", 3, "--out", tmp_path)

    assert "the numbers are the same as before" in call("rescore", tmp_path).output


def test_list_names_all_nine(tmp_path):
    output = call("list").output

    names = ("healthbench", "researchqa", "drb", "researchrubrics", "simpleqa", "twowiki", "webwalkerqa")
    assert all(name in output for name in (*names, "deepsearchqa", "almanac"))


def test_a_run_with_missing_answers_exits_with_3_and_can_go_on(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")  # the table breaks words where it is narrow
    answers = tmp_path / "answers.jsonl"
    answers.write_text('{"id": "test-rivers-01", "answer": "12 m"}\n')

    result = call("almanac", "--policy", f"file:{answers}", "--limit", 3, "--out", tmp_path / "run")

    assert result.exit_code == INCOMPLETE
    assert "2 unanswered" in result.output


def test_export_needs_inspect_or_says_how_to_install_it(tmp_path):
    call("almanac", "--policy", "expert", "--limit", 2, "--out", tmp_path / "run")

    result = call("export", tmp_path / "run", "--out", tmp_path / "log.eval")

    if find_spec("inspect_ai") is None:
        assert isinstance(result.exception, MissingExtraError)
        assert "rubricem[eval]" in str(result.exception)
    else:
        assert (tmp_path / "log.eval").exists()


@pytest.mark.skipif(find_spec("inspect_ai") is None, reason="inspect-ai (extra eval) is not installed")
def test_an_exported_log_is_read_by_inspect_with_every_sample(tmp_path):
    from inspect_ai.log import read_eval_log

    call("almanac", "--policy", "expert", "--limit", 2, "--out", tmp_path / "run")
    call("export", tmp_path / "run", "--out", tmp_path / "log.eval")

    log = read_eval_log(str(tmp_path / "log.eval"))

    assert [len(sample.scores) for sample in log.samples] == [1, 1]
    assert log.results.scores[0].metrics["truth"].value == 1.0
