"""`rubricem train` on a policy of a few thousand weights: to the end, stopped and resumed, and every mistake in a sentence."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import typer
from typer.testing import CliRunner

from rubricem_agent.build.training import Trainer, TrainingPlan, open_trackers, read_plan, scalars
from rubricem_agent.cli.main import app
from rubricem_agent.cli.train import train
from rubricem_agent.cli.view import report
from rubricem_agent.learn.metrics import EvaluationLine, LogFollower, read_log
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer

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
SCRIPT = "from tests.rubricem_agent.cli.test_train_command import APP; APP()"


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = tiny_tokenizer()
    tiny_qwen3(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def config(tmp_path, policy, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(policy=policy, out=tmp_path / "run"), encoding="utf-8")
    return path


def invoke(*arguments):
    return CliRunner().invoke(APP, [str(argument) for argument in arguments])


def fake_plan(tmp_path, code):
    """A plan whose trainer is `code`, and the environment in which it is found."""
    (tmp_path / "fake_trainer.py").write_text(code, encoding="utf-8")
    plan = TrainingPlan(tmp_path / "config.yaml", (), tmp_path / "run", 2, "fake_trainer")
    return plan, {**os.environ, "PYTHONPATH": str(tmp_path)}


def test_an_interrupt_stops_it_and_the_same_command_goes_on_to_the_model_and_the_page(config, tmp_path):
    command = [sys.executable, "-c", SCRIPT, "train", str(config), "steps=10000"]
    # A shell starts what is in the background with SIGINT ignored, and that is inherited.
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (tmp_path / "run" / "checkpoints" / "step-000002").is_dir(), process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    done = read_log(tmp_path / "run").steps[-1].step

    result = invoke("train", config, f"steps={done + 1}")

    assert process.returncode == 130
    assert "stopped; the same command goes on" in errors
    assert result.exit_code == 0, result.exception
    assert f"step {done + 1}/{done + 1}" in result.output
    assert [line.step for line in read_log(tmp_path / "run").steps] == list(range(1, done + 2))
    assert (tmp_path / "run" / "model" / "config.json").is_file()
    told = invoke("train", config, f"steps={done + 1}", "--json")
    assert json.loads(told.stdout)["steps"] == done + 1
    assert told.stderr == ""
    assert invoke("report", tmp_path / "run").exit_code == 0
    assert '"/runs/run/curves":' in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def wait_for(is_true, process, seconds=180.0):
    deadline = time.monotonic() + seconds
    while not is_true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("text", "changes", "reason"),
    [
        (None, (), "cannot read the config"),
        ("a: [", (), "cannot read the config"),
        ("- 1", (), "holds a YAML list"),
        ("steps: 3", (), "does not say where to write; add out: FOLDER"),
        ("out: x", ("steps",), "'steps' is not a setting; write KEY=VALUE"),
        ("out: x", ("--steps", "2"), "--steps is no option; settings are written KEY=VALUE without dashes"),
        ("out: x", ("--steps=2",), "--steps=2 is no option; settings are written KEY=VALUE"),
        ("out: x", ("steps=[",), "the value of 'steps=\\[' is not YAML"),
        ("out: x", ("steps=0",), "steps is 0; give a whole number from 1 up"),
    ],
)
def test_a_config_that_cannot_be_read_is_refused_before_anything_starts(tmp_path, text, changes, reason):
    path = tmp_path / "config.yaml"
    if text is not None:
        path.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=reason):
        read_plan(path, changes)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "run").write_text("a file", encoding="utf-8")
    plan, environ = fake_plan(tmp_path, "")

    with pytest.raises(ConfigError, match=r"cannot write to out, .* Choose another folder"):
        Trainer.start(plan, environ)


def test_a_folder_that_is_a_file_has_no_log_and_is_left_to_the_trainer_to_refuse(tmp_path):
    (tmp_path / "run").write_text("a file", encoding="utf-8")

    assert LogFollower(tmp_path / "run", skip_present=True).new_lines() == []


def test_an_option_that_is_none_is_answered_with_the_way_to_write_a_setting(config):
    result = CliRunner().invoke(app, ["train", str(config), "--steps", "2"])

    assert str(result.exception).startswith("--steps is no option; settings are written KEY=VALUE without dashes")


def test_two_trainers_do_not_share_a_folder(tmp_path):
    plan, environ = fake_plan(tmp_path, "import time; time.sleep(60)")
    first = Trainer.start(plan, environ)

    with pytest.raises(ConfigError, match="another process trains in"):
        Trainer.start(plan, environ)

    first.stop()
    first.finish()
    again = Trainer.start(plan, environ)
    again.stop()
    again.finish()


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import sys; sys.stderr.write('local_ssgrpo: no room.\\n'); sys.exit(2)", "no room."),
        ("raise ValueError('odd')", r"the trainer broke: ValueError: odd \(all of it in .*trainer\.err\)"),
        ("import os; os.kill(os.getpid(), 9)", r"ended by SIGKILL\. The system may have run out of memory\."),
    ],
    ids=["refused", "broken", "killed"],
)
def test_a_trainer_that_ends_badly_says_why_in_a_sentence(tmp_path, code, sentence):
    trainer = Trainer.start(*fake_plan(tmp_path, code))

    with pytest.raises(UsageError, match=sentence):
        trainer.finish()


class RecordingWandb:
    """Stands in for the wandb package: the offline run of a test."""

    def __init__(self):
        self.logged = []
        self.settings = {}
        self.Settings = dict

    def init(self, **settings):
        self.settings = settings
        return self

    def log(self, values, step):
        self.logged.append((step, values))

    def finish(self):
        self.logged.append("finished")


def test_wandb_is_fed_offline_and_closed(tmp_path, monkeypatch):
    wandb = RecordingWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    line = EvaluationLine(step=8, held_out={"answer": 0.5}, valid=0.9)

    (tracker,) = open_trackers(tmp_path / "run", tensorboard=False, wandb=True)
    tracker.record(line.step, scalars(line))
    tracker.close()

    assert wandb.settings["mode"] == "offline"
    assert wandb.settings["settings"] == {"silent": True, "console": "off"}
    assert wandb.logged == [(8, {"held_out/answer": 0.5, "held_out/valid": 0.9}), "finished"]


@pytest.mark.parametrize("package", ["tensorboard", "wandb"])
def test_a_tracker_that_is_not_installed_is_answered_with_the_pip_line(config, monkeypatch, package):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard" if package == "tensorboard" else package, None)

    result = invoke("train", config, f"--{package}")

    assert isinstance(result.exception, UsageError)
    assert f"--{package} needs {package}, which is not installed. Run: pip install 'rubricem[track]'" in str(
        result.exception
    )
