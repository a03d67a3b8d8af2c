"""`rubricem init`: what it writes runs as it is, and it overwrites nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_env.domain.errors import ConfigError
from trainers.local.settings import LocalConfig
from trainers.settings import read_settings

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path):
    done = CliRunner().invoke(app, ["init", str(tmp_path / "mine")])
    assert done.exit_code == 0, done.output
    assert "python play.py" in done.output
    return tmp_path / "mine"


def run(project, *arguments):
    command = [sys.executable, *arguments]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, timeout=120, check=False)


def test_its_files_are_those_of_its_table(project):
    named = [line.split("`")[1] for line in (project / "README.md").read_text().splitlines() if line.startswith("| `")]
    assert sorted([*named, "README.md"]) == sorted(path.name for path in project.iterdir())


def test_it_plays_its_questions_and_passes_its_tests(project):
    played = run(project, "play.py")
    assert (played.returncode, played.stdout.count("answer 1.00")) == (0, 4), played.stderr
    tested = run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=")
    assert (tested.returncode, "3 passed" in tested.stdout) == (0, True), tested.stdout


def test_a_model_that_does_not_answer_has_no_scores(project):
    for policy, said in (("openai:m@http://127.0.0.1:9/v1", "127.0.0.1"), ("nonsense", "nonsense")):
        played = run(project, "play.py", policy)
        assert (played.returncode, played.stdout) == (1, "")
        assert played.stderr.startswith("play.py: ")
        assert said in played.stderr
        assert "Traceback" not in played.stderr


def test_its_config_is_one_that_the_trainer_takes(project):
    assert read_settings(project / "config.yaml", LocalConfig).steps == 4


def test_a_folder_with_something_in_it_and_a_file_are_refused(tmp_path):
    (tmp_path / "note").write_text("mine")
    for folder, reason in (
        (tmp_path, "is not empty, and nothing in it is overwritten"),
        (tmp_path / "note", "File exists"),
    ):
        done = CliRunner().invoke(app, ["init", str(folder)])
        assert isinstance(done.exception, ConfigError)
        assert reason in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["note"]
