"""The wheel and the sdist as their user has them: in an environment outside the repository, in an empty folder."""

import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.test_docs import fits, run, sessions

if "RUBRICEM_DIST" not in os.environ:
    pytest.skip("the wheel is built by make wheel-lane", allow_module_level=True)
ROOT = Path(__file__).parents[3]
UV = Path(sys.executable).with_name("uv")
NO_UV_SETTINGS = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "VIRTUAL_ENV"))}
DIST = Path(os.environ["RUBRICEM_DIST"]).absolute()
"""Holds the wheel that was built from the sdist, and in `tree` the one that was built from the repository."""
(WHEEL,) = DIST.glob("*.whl")
TORCH = "torch==2.13.0"
"""First and alone: asked for by another package it comes with gigabytes of CUDA."""
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-warn-script-location")
QUICKSTART = next(found.values[0] for found in sessions() if found.id == "docs/quickstart.md")
SMALL = ("steps=1", "questions_per_step=2", "group_size=2", "evaluate_every=100")


def environment(folder: Path, *installed: str) -> Path:
    """A new environment with these things in it, installed one after the other; returns its folder of programs.

    pip installs what is small. With torch it would take minutes, which `uv pip` spares.
    """
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = (ROOT / "ci" / "install", folder) if TORCH in installed else (folder / "bin" / "python", *PIP)
    for package in installed:
        subprocess.run([*install, package], check=True, cwd=ROOT)
    return folder / "bin"


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("core") / "venv", str(WHEEL))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("local") / "venv", TORCH, f"{WHEEL}[local]")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Empty but for the user's own package `trainers`, which nothing of ours may import."""
    (tmp_path / "trainers").mkdir()
    (tmp_path / "trainers" / "__init__.py").write_text("raise RuntimeError('the user has a package of this name')\n")
    return tmp_path


def checksums(wheel: Path) -> dict[str, int]:
    with ZipFile(wheel) as opened:
        return {entry.filename: entry.CRC for entry in opened.infolist()}


def test_the_sdist_builds_the_wheel_that_the_repository_builds():
    (tree,) = (DIST / "tree").glob("*.whl")
    assert checksums(WHEEL) == checksums(tree)


def test_the_wheel_installs_packages_of_our_name_alone():
    names = {name.split("/")[0] for name in checksums(WHEEL)}
    assert {name for name in names if not name.endswith(".dist-info")} == {
        "rubricem_agent",
        "rubricem_env",
        "rubricem_records",
        "rubricem_trainers",
        "rubricem_viewer",
    }


def test_the_lock_for_uv_fits_the_project():
    done = subprocess.run([UV, "lock", "--check", "--quiet"], cwd=ROOT, env=NO_UV_SETTINGS, check=False)
    assert done.returncode == 0, "uv.lock does not fit pyproject.toml; run `uv lock`"


def test_uvx_runs_a_command_of_the_wheel_with_an_extra(tmp_path):
    command = [
        str(UV),
        "tool",
        "run",
        "--from",
        f"{WHEEL}[tools]",
        "rubricem",
        "tools",
        "call",
        "google_search",
        "bridge",
    ]
    done = subprocess.run(command, cwd=tmp_path, env=NO_UV_SETTINGS, capture_output=True, text=True, check=False)
    assert (done.returncode, "https://almanac.example/" in done.stdout) == (0, True), done.stderr


def test_the_quickstart_prints_what_the_page_says(core, tmp_path):
    for command, told in QUICKSTART:
        code, printed = run(core, command, tmp_path)
        assert (code, fits(printed, told)) == (0, True), f"$ {command}\n{printed}"


def test_training_without_torch_names_what_is_to_be_installed(core, folder):
    code, printed = run(core, "COLUMNS=200 rubricem train demo_almanac", folder)
    assert (code, "pip install 'rubricem[local]'" in printed) == (2, True), printed


def test_a_wrong_name_lists_the_configs_of_the_wheel(core, folder):
    code, printed = run(core, "COLUMNS=200 rubricem train-verl demo", folder)
    assert code == 2
    assert "verl_rubricem_8b, verl_rubricem_8b_h100, " in printed
    assert "demo_almanac" not in printed


def test_a_dry_run_on_verl_needs_neither_torch_nor_a_clone(core, folder):
    code, printed = run(core, "rubricem train-verl --dry-run --json", folder)
    assert code == 0, printed
    assert json.loads(printed)["config"] == "verl_rubricem_8b"


def test_a_new_project_plays_as_it_is(core, folder):
    code, printed = run(core, "rubricem init mine && cd mine && python play.py", folder)
    assert (code, printed.count("answer 1.00")) == (0, 4), printed


def test_a_step_of_the_demo_is_trained_beside_a_package_of_the_users_named_trainers(local, folder):
    code, printed = run(local, f"rubricem train demo_almanac out=run {' '.join(SMALL)}", folder)
    assert code == 0, printed
    assert (folder / "run" / "model" / "config.json").is_file()


def test_fine_tuning_reads_its_config_by_name(local, folder):
    code, printed = run(
        local, "COLUMNS=200 python -P -m rubricem_trainers.fine_tuning.sft --config sft_almanac", folder
    )
    assert code == 2
    assert "no model can be loaded from 'runs/tiny_policy/untrained'" in printed


def test_the_lines_of_the_training_page_make_an_environment_for_verl_on_two_cores(tmp_path):
    programs = environment(tmp_path / "venv", TORCH, f"{WHEEL}[verl]")
    modules = "verl.trainer.main_ppo, rubricem_trainers.verl_backend.trainer"
    for command in ("rubricem train-verl verl_almanac_cpu --preflight", f"python -P -c 'import {modules}'"):
        code, printed = run(programs, command, tmp_path)
        assert code == 0, printed
