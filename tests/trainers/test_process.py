"""Trainer processes: their config, their folder and their failures."""

import os
import re
from pathlib import Path

import pytest

from rubricem_env.domain.errors import ConfigError, UsageError
from trainers.process import Trainer, TrainerCommand, read_trainer_command


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
        ConfigError, match=r"path of a YAML file, or a name: ablation_almanac, demo_almanac, local_almanac\.$"
    ):
        read_trainer_command(Path("demo"), ())


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("sft_almanac", "rubricem_trainers.fine_tuning.sft"),
        ("sft_qwen3_8b", "rubricem_trainers.fine_tuning.sft"),
        ("tiny_policy", "research.tiny_policy"),
    ],
)
def test_a_config_of_another_trainer_is_refused_with_the_command_that_reads_it(tmp_path, monkeypatch, name, module):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=rf"another trainer: python -m {re.escape(module)} --config {name}$"):
        read_trainer_command(Path(name), ())


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


def test_lines_of_progress_are_read_once_from_what_a_trainer_writes_and_are_no_error(tmp_path):
    code = (
        "import sys; sys.stderr.write('... step 0: 1 of 2\\nwarning\\n... step 0: 2 of 2\\nno room.\\n'); sys.exit(2)"
    )
    trainer = Trainer.start(*fake_trainer_command(tmp_path, code))
    with pytest.raises(UsageError, match=r"^no room\.$"):
        trainer.finish()

    assert trainer.new_progress() == ["step 0: 1 of 2", "step 0: 2 of 2"]
    assert trainer.new_progress() == []
