"""Modules that lie in the folder where a command is started are never run: its environment holds keys."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainers.process import python_command

ROOT = Path(__file__).parents[2]
PLANTED = (
    *("argparse", "json", "logging", "random", "signal", "typing", "sitecustomize", "usercustomize"),
    *(
        "numpy",
        "torch",
        "transformers",
        "pydantic",
        "yaml",
        "rubricem_env",
        "rubricem_agent",
        "rubricem_records",
        "rubricem_viewer",
        "trainers",
        "verl",
    ),
)
# What the command `rubricem` is: a script that does not stand in the current folder.
CONSOLE = [sys.executable, "-P", "-c", "from rubricem_agent.cli.main import main; main()"]


@pytest.fixture
def folder(tmp_path):
    """A folder with a module of every name that a trainer might import, each of which leaves a trace."""
    for name in PLANTED:
        code = (
            f"from pathlib import Path; Path({str(tmp_path / 'ran')!r}).touch()\nraise SystemExit('planted {name}')\n"
        )
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    (tmp_path / "config.yaml").write_text(f"policy: {tmp_path / 'absent'}\nout: {tmp_path / 'run'}\nsteps: 1\n")
    return tmp_path


def start(command, folder):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_a_trainer_runs_no_module_of_the_current_folder(folder):
    pytest.importorskip("torch")
    done = start([*CONSOLE, "train", "config.yaml"], folder)

    assert not (folder / "ran").exists(), done.stderr
    # The trainer itself has run, and refused the policy.
    assert done.returncode == 2
    assert "absent" in done.stderr


def test_a_reader_of_pages_runs_no_module_of_the_current_folder_and_has_no_key(folder):
    pytest.importorskip("resiliparse")
    (folder / "pypdf.py").write_text((folder / "json.py").read_text())
    reads = (
        "from rubricem_env.tools.pages.reader import PageReader; reader = PageReader(); "
        "print(reader.read_now(b'<title>T</title><p>words</p>', 'html')); "
        "pid = reader._processes._idle[0].pid; print(open(f'/proc/{pid}/environ').read()); reader.close()"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", reads],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "GEMINI_API_KEY": "secret-key"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "('T', 'words')" in done.stdout
    assert "secret-key" not in done.stdout
    assert not (folder / "ran").exists()


def test_every_module_is_started_by_the_command_that_leaves_the_current_folder_out(folder):
    done = start(python_command("json.tool", "--help"), folder)

    assert (done.returncode, (folder / "ran").exists()) == (0, False)
    starts = [
        path.relative_to(ROOT).as_posix()
        for package in ("rubricem_env", "rubricem_agent", "rubricem_records", "rubricem_viewer", "trainers")
        for path in sorted((ROOT / package).rglob("*.py"))
        if re.search(r"sys\.executable", path.read_text(encoding="utf-8")) and "testing" not in path.parts
    ]
    assert starts == ["rubricem_env/tools/limited_processes.py", "trainers/process.py"]
