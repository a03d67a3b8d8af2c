"""`rubricem watch` on a folder like that of a veRL run: what it evaluates, records and retries."""

import json
import shutil
import sys

import pytest
from rubricem_trainers.verl_backend import watch as watching
from rubricem_trainers.verl_backend.watch import Watch, served
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_agent.policy.base import SYSTEM_FILE
from rubricem_env.domain.errors import ConfigError
from rubricem_records.runs.recorded_run import read_run
from rubricem_records.runs.run_log import read_log
from rubricem_viewer.curves import make_figures


@pytest.fixture
def run(tmp_path, model_folder, monkeypatch):
    """Steps 2, 4 and 6 are there; veRL has marked 4 as the last that it has saved."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "config.json").write_text(json.dumps({"system": "Search."}))
    (tmp_path / "metrics.jsonl").touch()
    (tmp_path / watching.MARKER).write_text("4")
    for step in (2, 4, 6):
        (tmp_path / f"global_step_{step}" / "actor").mkdir(parents=True)
    monkeypatch.setattr(watching, "merge_shards", lambda actor, target: shutil.copytree(model_folder, target))
    return tmp_path


def evaluate(run, *arguments):
    given = ["watch", str(run), "--eval", "almanac", "--limit", "1", "--engine", "local", "--once", *arguments]
    return CliRunner().invoke(app, given)


def test_saved_steps_are_evaluated_once_into_the_log_and_the_curves(run):
    done = evaluate(run, "--every", "4", "--json")
    assert done.exit_code == 0, done.output
    assert [(line["step"], line["benchmark"]) for line in json.loads(done.stdout)] == [(4, "almanac")]
    (line,) = read_log(run).benchmarks
    assert line.low <= line.score <= line.high
    assert not (run / "watch" / "step-4" / "model").exists()
    answers = json.loads((run / "watch" / "step-4" / "almanac" / "run.json").read_text())
    assert answers["agent"]["policy"].startswith("local:")
    figure = next(each for each in make_figures(read_run(run)) if each.key == "held_out.benchmarks")
    assert [(curve.name, curve.x, curve.y) for curve in figure.curves] == [("almanac", (4.0,), (line.score,))]
    assert [step for step, _ in Watch(run, ["almanac"]).due()] == [2]
    assert Watch(run, ["almanac"], every=4).due() == []
    assert Watch(run, ["almanac", "simpleqa"], every=4).due() == [(4, ["simpleqa"])]


def test_the_model_keeps_the_system_prompt_that_it_is_trained_with(run, monkeypatch):
    seen = []

    def ask(arguments):
        seen.append((run / "watch" / "step-2" / "model" / SYSTEM_FILE).read_text())
        return {"score": 0.5, "low": 0.25, "high": 0.75}

    monkeypatch.setattr(watching, "_run_eval", ask)
    assert [line.score for line in Watch(run, ["almanac"], engine="local").evaluate(2, ["almanac"])] == [0.5]
    assert seen == ["Search."]


def test_a_failed_evaluation_is_tried_again_and_then_left_out(run, monkeypatch):
    said, sleeps = [], []

    def fail(arguments):
        raise ConfigError("the judge is away.")

    def sleep(seconds):
        sleeps.append(seconds)
        if len(sleeps) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(watching, "_run_eval", fail)
    monkeypatch.setattr(watching, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        watching.watch(Watch(run, ["almanac"], every=4, engine="local"), said.append)
    assert [text.split(": ", 1)[1] for text in said] == [
        "the judge is away. It is tried again.",
        "the judge is away. It is tried again.",
        "the judge is away. It is left out.",
    ]
    assert not (run / "watch" / "step-4" / "model").exists()
    with pytest.raises(ConfigError, match="away"):
        watching.watch(Watch(run, ["almanac"], every=4, engine="local"), said.append, once=True)


def test_a_failed_command_and_a_wrong_folder_are_one_sentence(run, tmp_path):
    failed = evaluate(run, "--", "--mode", "nonsense")
    assert isinstance(failed.exception, ConfigError)
    assert "ended with code" in str(failed.exception)
    assert "simpleqa" in (said := str(evaluate(run, "--eval", "simpleqa").exception))
    assert "are about the real world, and no tools are named" in said  # before the first checkpoint
    assert "holds no metrics.jsonl" in str(evaluate(tmp_path / "nowhere").exception)
    assert "there is no benchmark 'nosuch'" in str(evaluate(run, "--eval", "nosuch").exception)
    (run / watching.MARKER).write_text("x")
    assert "holds 'x' in place of the last saved step" in str(evaluate(run).exception)


def test_without_vllm_nothing_is_merged(run, monkeypatch):
    monkeypatch.setenv("PATH", str(run))
    refused = evaluate(run, "--engine", "vllm").exception
    assert isinstance(refused, ConfigError)
    assert "there is no command vllm here. Install vLLM, or play the model by --engine local." in str(refused)
    assert not (run / "watch").exists()


def test_a_server_is_waited_for_and_ended():
    serve = (
        "import http.server, sys; "
        "http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind='127.0.0.1')"
    )
    with watching.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    health = f"http://127.0.0.1:{port}/"
    with served([sys.executable, "-c", serve, str(port)], health, seconds=30):
        assert watching._answers(health)
    assert not watching._answers(health)


@pytest.mark.parametrize(
    ("command", "seconds", "told"),
    [
        ([sys.executable, "-c", "raise SystemExit(3)"], 30, "ended with code 3 before it answered"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], 0.3, "did not answer at http://127.0.0.1:9/"),
    ],
)
def test_a_server_that_does_not_answer_is_told(command, seconds, told):
    with pytest.raises(ConfigError, match=told), served(command, "http://127.0.0.1:9/", seconds=seconds):
        pass
