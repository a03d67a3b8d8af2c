"""`rubricem train` on a policy of a few thousand weights: whole, stopped and resumed, and with mistakes."""

import io
import json
import re
import signal
import subprocess
import sys
import time

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_agent.cli.report import report
from rubricem_agent.learn.checkpoint import checkpoint_steps
from rubricem_env.domain.errors import UsageError
from rubricem_records.runs.log_lines import EvaluationLine, StepLine, WarningLine
from rubricem_records.runs.run_log import read_log
from trainers.cli.log_lines import describe_line, show_line
from trainers.cli.train import train

CONFIG = """
policy: {policy}
out: {out}
steps: 2
questions_per_step: 2
group_size: 2
max_turn_tokens: 24
limits: {{max_tokens: 300, max_turns: 3, max_calls: 2}}
reflection: {{total_tokens: 2800, new_tokens: 16, num_candidates: 2}}
evaluate_every: 100
checkpoint_every: 1
"""
APP = typer.Typer()
APP.command()(train)
APP.command()(report)
SCRIPT = "from tests.trainers.cli.test_train import APP; APP()"


@pytest.fixture
def config(tmp_path, policy, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(policy=policy, out=tmp_path / "run"), encoding="utf-8")
    return path


def invoke(*arguments):
    return CliRunner().invoke(APP, [str(argument) for argument in arguments])


def test_an_interrupt_stops_it_and_the_same_command_goes_on_to_the_model_and_the_page(config, tmp_path):
    command = [sys.executable, "-c", SCRIPT, "train", str(config), "steps=10000"]
    # A shell starts what is in the background with SIGINT ignored, and that is inherited.
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (tmp_path / "run" / "checkpoints" / "step-000002").is_dir(), process)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=120)
    done = read_log(tmp_path / "run").steps[-1].step

    saved = checkpoint_steps(tmp_path / "run" / "checkpoints")[-1]
    assert f"resumes after step {saved}," in errors
    result = invoke("train", config, f"steps={done + 1}", "--json")

    assert process.returncode == 130
    assert [f"step {step}/10000" for step in range(1, done + 1) if f"step {step}/10000" not in printed] == []
    assert re.search(r"stopped; the same command resumes after step \d+, the last checkpoint\.", errors)
    assert result.exit_code == 0, result.exception
    assert json.loads(result.stdout)["steps"] == done + 1
    assert result.stderr == ""
    assert [line.step for line in read_log(tmp_path / "run").steps] == list(range(1, done + 2))
    assert (tmp_path / "run" / "model" / "config.json").is_file()
    assert invoke("report", tmp_path / "run").exit_code == 0
    assert '"/runs/run/curves":' in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_an_interrupt_before_the_first_checkpoint_says_that_the_next_start_begins_anew(config, tmp_path):
    command = [sys.executable, "-c", SCRIPT, "train", str(config), "checkpoint_every=1000", "steps=10000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").is_file(), process)
    process.send_signal(signal.SIGINT)

    assert "no checkpoint was saved yet, so the same command begins anew" in process.communicate(timeout=120)[1]
    assert process.returncode == 130


def test_a_start_that_resumes_names_its_step(config):
    invoke("train", config, "steps=1")

    assert "resuming after step 1 of 2, from its checkpoint in" in invoke("train", config, "steps=2").stdout


def wait_for(is_true, process, seconds=180.0):
    deadline = time.monotonic() + seconds
    while not is_true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_option_that_is_none_is_answered_with_the_way_to_write_a_setting(config):
    result = CliRunner().invoke(app, ["train", str(config), "--steps", "2"])

    assert str(result.exception).startswith("--steps is no option; settings are written KEY=VALUE without dashes")


@pytest.mark.parametrize("package", ["tensorboard", "wandb", "trackio"])
def test_a_tracker_that_is_not_installed_is_answered_with_the_pip_line(config, monkeypatch, package):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard" if package == "tensorboard" else package, None)

    result = invoke("train", config, "--track", package)

    assert isinstance(result.exception, UsageError)
    assert f"--track {package} needs {package}, which is not installed. Run: pip install 'rubricem[track]'" in str(
        result.exception
    )


SCORES = {"plan": 0.9, "research": 0.8, "review": 0.7, "answer": 0.6}


def step(number, **more):
    told = {"plan": {"tokens": 10, "entropy": 0.25, "kl": 0.0125}}
    fields = {
        "step": number,
        "encounter": "new",
        "true": SCORES,
        "judged": {**SCORES, "review": None},
        "task": {"loss": 0.1, "grad_norm": 1.0, "tokens": 10, "stages": told},
        "bank": 7,
        "rollout_stats": {"answer_words": 40, "repeated_calls": 0.0, "valid": 1.0, "policy_tokens": 900},
        "seconds": {"sample": 2.0, "update": 1.0},
    }
    return StepLine.model_validate({**fields, **more})


def shown(*lines):
    console = Console(file=io.StringIO(), width=140, color_system=None)
    for line in lines:
        show_line(line, 24, console)
    return console.file.getvalue()


def test_a_step_is_a_line():
    # 900 tokens in 2 + 1 seconds.
    assert shown(step(3)) == (
        "step 3/24 new: true plan 0.90 research 0.80 review 0.70 answer 0.60; KL 0.0125; bank 7; utility -; "
        "300 tokens/s; 3.0 s\n"
    )


def test_a_step_without_an_update_says_so_and_an_old_line_without_counts_has_no_speed():
    assert "nothing to learn from" in describe_line(step(1, task=None), 24)
    assert "; 0 tokens/s;" in describe_line(step(1, rollout_stats=None), 24)


def test_an_evaluation_and_a_warning_are_sentences_and_markup_is_text():
    evaluation = EvaluationLine(step=8, held_out={"answer": 0.5}, valid=0.96)

    text = shown(evaluation, WarningLine(step=8, warning="parted by [/red] 0.2"))

    assert "step 8: held-out questions, by truth: answer 0.50; 96% valid" in text
    assert "parted by [/red] 0.2" in text
