"""`python -m research.ablate`: which runs there are, how they share the machine, what is left behind."""

import json
import os

import pytest
import typer
from typer.testing import CliRunner

from research.ablate import ablate, list_runs, run_all
from rubricem_agent.cli.report import report
from rubricem_records.runs.recipes import RECIPES, choose_recipes
from trainers.local.settings import LocalConfig, with_system
from trainers.process import Trainer, TrainerCommand, read_trainer_command
from trainers.settings import read_settings

STAGES = ("plan", "research", "review", "answer")
APP = typer.Typer()
APP.command()(ablate)
APP.command()(report)

FAKE = """
import json, os, sys, time
from pathlib import Path
changes = dict(one.split("=", 1) for one in sys.argv[3:])
out = Path(changes["out"])
beside = out.parents[1] / "running"
beside.mkdir(exist_ok=True)
mark = beside / out.parent.name
mark.touch()
time.sleep(0.3)
with (out.parents[1] / "together").open("a") as file:
    file.write(f"{len(list(beside.iterdir()))} {os.environ['OMP_NUM_THREADS']}\\n")
time.sleep(0.3)
mark.unlink()
if changes["credit"] == os.environ.get("FAIL_ON"):
    sys.stderr.write("local_ssgrpo: no room.\\n")
    sys.exit(2)
scores = dict.fromkeys(("plan", "research", "review", "answer"), 0.5)
line = {"step": int(changes["steps"]), "held_out": scores, "valid": 1.0}
(out / "metrics.jsonl").write_text(json.dumps(line) + "\\n")
"""


@pytest.fixture
def fake(tmp_path):
    """A base plan whose trainer sleeps and writes one request, and the environment in which it is found."""
    (tmp_path / "fake_trainer.py").write_text(FAKE, encoding="utf-8")
    plan = TrainerCommand(tmp_path / "config.yaml", ("rows=8",), tmp_path / "out", 4, "fake_trainer")
    return plan, {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}


def finished_ablation(tmp_path, *, seeds, more="", gain=0.0, recipes=RECIPES):
    """A config, and the folder of its finished runs, whose answers gain a little by their last step."""
    out, config = tmp_path / "out", tmp_path / "config.yaml"
    config.write_text(f"policy: p\nout: {out}\nsteps: 8\n{more}", encoding="utf-8")
    evaluations = [{"step": at, "held_out": dict.fromkeys(STAGES, 0.5 + at * gain), "valid": 1.0} for at in (0, 8)]
    for one in list_runs(read_trainer_command(config, []), seeds=seeds, steps=None, recipes=recipes):
        one.trainer.out.mkdir(parents=True)
        log = "".join(json.dumps(evaluation) + "\n" for evaluation in evaluations)
        (one.trainer.out / "metrics.jsonl").write_text(log, encoding="utf-8")
        settings = with_system(read_settings(config, LocalConfig, changes=one.trainer.changes))
        (one.trainer.out / "config.json").write_text(settings.model_dump_json(), encoding="utf-8")
    return out, config


def run(runs, environ, jobs=2):
    return run_all(runs, jobs=jobs, environ=environ, report=lambda: None)


def test_there_are_four_recipes_for_each_seed_and_each_has_a_folder(fake):
    runs = list_runs(fake[0], seeds=2, steps=6)

    assert len({one.trainer.out for one in runs}) == 8
    assert [one.seed for one in runs] == [0] * 4 + [1] * 4
    last = runs[-1].trainer
    assert last.changes[:5] == ("rows=8", "credit=stages", "meta_policy=true", "seed=1", "steps=6")
    assert last.out == fake[0].out / "whole" / "seed-1"


def test_two_run_at_a_time_on_one_thread_each(fake):
    base, environ = fake

    failures = run(list_runs(base, seeds=1, steps=None), environ)

    together = [line.split() for line in (base.out / "together").read_text(encoding="utf-8").splitlines()]
    assert failures == {}
    assert len(together) == 4
    assert max(int(count) for count, _ in together) <= 2
    assert {threads for _, threads in together} == {"1"}


def test_a_failed_run_stops_no_other_and_is_the_only_one_tried_again(fake):
    base, environ = fake
    runs = list_runs(base, seeds=1, steps=None)

    failures = run(runs, {**environ, "FAIL_ON": "answer_only"}, jobs=4)
    again = run(runs, environ, jobs=4)

    assert failures == {"answer-only GRPO, seed 0": "no room.", "answer-only + meta-policy, seed 0": "no room."}
    assert again == {}
    # Four at first, then the two that had failed.
    assert len((base.out / "together").read_text(encoding="utf-8").splitlines()) == 6


def test_the_trainer_understands_the_changes_of_every_recipe(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(f"policy: p\nout: {tmp_path}/out\n", encoding="utf-8")

    plans = [one.trainer for one in list_runs(read_trainer_command(config, ["rows=8"]), seeds=1, steps=5)]
    settings = [read_settings(config, LocalConfig, changes=plan.changes) for plan in plans]

    recipes = [("answer_only", False), ("stages", False), ("answer_only", True), ("stages", True)]
    assert [(one.credit, one.meta_policy) for one in settings] == recipes
    assert {(one.steps, one.rows) for one in settings} == {(5, 8)}
    assert [one.out for one in settings] == [plan.out for plan in plans]


def test_a_finished_ablation_leaves_table_figure_numbers_page_and_expected_curves(tmp_path):
    out, config = finished_ablation(tmp_path, seeds=2, gain=0.01)

    result = CliRunner().invoke(APP, ["ablate", str(config), "--seeds", "2", "--json"])

    assert result.exit_code == 0, result.exception
    found = json.loads(result.stdout)
    assert [one["name"] for one in found["results"]] == ["answer_only", "ss_grpo", "answer_only_meta", "whole"]
    assert found["results"][3]["answer"]["mean"] == pytest.approx(0.58)
    assert '"steps_to_baseline":8' in (out / "ablation.html").read_text(encoding="utf-8")
    assert (out / "ablation.svg").read_text(encoding="utf-8").startswith("<svg")
    assert json.loads((out / "expected" / "whole.json").read_text(encoding="utf-8"))["seeds"] == 2
    assert "not reached" not in CliRunner().invoke(APP, ["ablate", str(config), "--seeds", "2"]).output


def test_a_folder_with_an_ablation_of_nothing_is_refused(tmp_path):
    (tmp_path / "ablation.json").write_text('{"steps": 1, "command": "x", "results": []}', encoding="utf-8")

    result = CliRunner().invoke(APP, ["report", str(tmp_path)])

    assert "no ablation" in str(result.exception)


def test_a_finished_run_with_other_settings_is_not_passed_off_as_this_one(tmp_path):
    _, config = finished_ablation(tmp_path, seeds=1, more="learning_rate: 1e-4\nloss: {kl_coefficient: 0.5}\n")

    def again(*changes):
        return CliRunner().invoke(APP, ["ablate", str(config), *changes, "--seeds", "1"])

    assert again("learning_rate=0.0001", "loss={kl_coefficient: 0.5}").exit_code == 0
    assert "learning_rate=0.0001; learning_rate=0.01 is requested" in str(again("learning_rate=1e-2").exception)
    assert "another folder" in str(again("loss={kl_coefficient: 0.1}").exception)


def test_a_key_that_was_removed_from_the_config_is_a_changed_setting(tmp_path):
    out, config = finished_ablation(tmp_path, seeds=1, more="temperature: 0.7\n")
    config.write_text(f"policy: p\nout: {out}\nsteps: 8\n", encoding="utf-8")

    refusal = CliRunner().invoke(APP, ["ablate", str(config), "--seeds", "1"]).exception

    assert "temperature=0.7; temperature=1.0 is requested" in str(refusal)


def test_a_folder_in_which_another_process_trains_stops_no_other_run(fake):
    base, environ = fake
    runs = list_runs(base, seeds=1, steps=None)
    held = Trainer.start(runs[0].trainer, environ)
    try:
        failures = run(runs, environ)
    finally:
        held.stop()
        held.finish()

    assert list(failures) == ["answer-only GRPO, seed 0"]
    assert "another process trains in" in failures["answer-only GRPO, seed 0"]


def test_methods_have_a_page_of_what_has_ended_and_their_own_changes_are_no_other_settings(tmp_path):
    out, config = finished_ablation(tmp_path, seeds=1, gain=0.01, recipes=choose_recipes("srar,whole_weighted"))
    (out / "srar" / "seed-0" / "metrics.jsonl").unlink()

    asked = ["ablate", str(config), "--methods", "srar,whole_weighted", "--seeds", "2", "--finished"]
    result = CliRunner().invoke(APP, asked)

    assert result.exit_code == 0, result.exception
    page = (out / "arena.md").read_text(encoding="utf-8")
    assert "distilled with weights" in page
    assert "SRaR" not in page
    assert "--methods srar,whole_weighted" in page


def test_a_comparison_of_nothing_is_refused(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(f"policy: p\nout: {tmp_path}/out\n", encoding="utf-8")
    asked = ["ablate", str(config), "--finished"]
    assert "no run of answer-only GRPO has ended" in str(CliRunner().invoke(APP, asked).exception)
