"""Trainer processes: their config, their folder and their failures; TensorBoard and W&B with the real packages."""

import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from rubricem_agent.build.training import Trainer, TrainerCommand, open_trackers, read_trainer_command
from rubricem_agent.learn.metrics import EvaluationLine, StepLine
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import ConfigError, UsageError

SCORES = {stage.value: place / 4 for place, stage in enumerate(STAGES)}
STEPS = [
    StepLine(step=step, encounter="new", true=SCORES, judged=SCORES, bank=step, seconds={"sample": 1.0})
    for step in (1, 2)
]
EXAM = EvaluationLine(step=2, held_out=SCORES, valid=0.9)


def track(out, *lines, **chosen):
    with ExitStack() as closing:
        (tracker,) = open_trackers(out, **{"tensorboard": False, "wandb": False, **chosen}, closing=closing)
        for line in lines:
            tracker(line)


def test_tensorboard_reads_the_scores_of_every_stage_by_step(tmp_path):
    events = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs pip install 'rubricem[track]'"
    )
    track(tmp_path / "run", *STEPS, EXAM, tensorboard=True)

    read = events.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()

    for stage, score in SCORES.items():
        assert [(event.step, event.value) for event in read.Scalars(f"true/{stage}")] == [(1, score), (2, score)]
        assert [(event.step, event.value) for event in read.Scalars(f"held_out/{stage}")] == [(2, score)]


@pytest.mark.filterwarnings("default")  # the package's own
def test_wandb_writes_an_offline_run_and_no_key_and_leaves_the_terminal_alone(tmp_path, monkeypatch, capfd):
    pytest.importorskip("wandb", reason="needs pip install 'rubricem[track]', 62 MB")
    key = "c0ffee" * 6 + "cafe"
    for name, value in {"HOME": str(tmp_path), "WANDB_API_KEY": key}.items():
        monkeypatch.setenv(name, value)
    capfd.readouterr()

    track(tmp_path / "run", *STEPS, EXAM, wandb=True)

    (written,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    content = written.read_bytes()
    assert all(re.search(rb"held_out/" + stage.encode(), content) for stage in SCORES)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]
    assert capfd.readouterr() == ("", "")


def fake_trainer_command(tmp_path, code):
    """A plan whose trainer is `code`, and the environment in which it is found."""
    (tmp_path / "fake_trainer.py").write_text(code, encoding="utf-8")
    plan = TrainerCommand(tmp_path / "config.yaml", (), tmp_path / "run", 2, "fake_trainer")
    return plan, {**os.environ, "PYTHONPATH": str(tmp_path)}


@pytest.mark.parametrize(
    ("text", "changes", "reason"),
    [
        (None, (), "cannot read the config"),
        ("a: [", (), "cannot read the config"),
        ("- 1", (), "holds a YAML list"),
        ("", (), "is empty; a config has lines KEY: VALUE"),
        ("# nothing yet\n", ("out=x",), "is empty"),
        ("hydra: {}\ndefaults: [ppo_trainer]\n", (), "is a config of veRL.*rubricem train-verl .*config"),
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
        read_trainer_command(path, changes)


def test_a_config_of_the_package_goes_by_its_name_and_a_file_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_trainer_command(Path("demo_almanac"), ()).out == Path("runs/demo/training")
    (tmp_path / "demo_almanac").write_text("out: mine\n", encoding="utf-8")
    assert read_trainer_command(Path("demo_almanac"), ()).out == Path("mine")


def test_a_wrong_name_is_answered_with_the_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match=r"path of a YAML file, or a name: ablation_almanac, demo_almanac, .*verl_ssgrpo_8b\.$"
    ):
        read_trainer_command(Path("demo"), ())


def test_two_trainers_do_not_share_a_folder_and_a_file_in_its_place_is_refused(tmp_path):
    plan, environ = fake_trainer_command(tmp_path, "import time; time.sleep(60)")
    for _ in range(2):
        trainer = Trainer.start(plan, environ)
        with pytest.raises(ConfigError, match="another process trains in"):
            Trainer.start(plan, environ)
        trainer.stop()
        trainer.finish()

    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(
        ConfigError,
        match=r"cannot write to .*file: (File exists|Not a directory)\. Make room, or choose another folder",
    ):
        Trainer.start(plan._replace(out=tmp_path / "file"), environ)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import sys; sys.stderr.write('local_ssgrpo: no room.\\n'); sys.exit(2)", "no room."),
        ("raise ValueError('odd')", r"the trainer failed: ValueError: odd \(full output in .*trainer\.err\)"),
        ("import os; os.kill(os.getpid(), 9)", r"ended by SIGKILL\. The system may have run out of memory\."),
    ],
    ids=["refused", "broken", "killed"],
)
def test_a_trainer_that_ends_badly_says_why_in_a_sentence(tmp_path, code, sentence):
    trainer = Trainer.start(*fake_trainer_command(tmp_path, code))

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

    track(tmp_path / "run", EvaluationLine(step=8, held_out={"answer": 0.5}, valid=0.9), wandb=True)

    assert wandb.settings["mode"] == "offline"
    assert wandb.settings["settings"] == {"silent": True, "console": "off"}
    assert wandb.logged == [(8, {"held_out/answer": 0.5, "held_out/valid": 0.9}), "finished"]
