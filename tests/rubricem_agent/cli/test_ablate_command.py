"""`rubricem ablate`: which runs there are, how they share the machine, what is left behind."""

import json
import os

import pytest
import typer
from typer.testing import CliRunner

from rubricem_agent.build.train import TrainingPlan
from rubricem_agent.cli.ablate import ablate
from rubricem_agent.cli.ablate_runs import plan_runs, run_all
from rubricem_agent.cli.report import report
from rubricem_env.testing.tiny_qwen3 import tiny_qwen3, tiny_tokenizer

CONFIG = """
policy: {policy}
out: {out}
questions_per_step: 2
group_size: 2
max_turn_tokens: 24
limits: {{max_tokens: 300, max_turns: 3, max_calls: 2}}
reflection: {{total_tokens: 2800, new_tokens: 16, num_candidates: 2}}
"""
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
    """A base plan whose trainer sleeps and writes one examination, and the environment in which it is found."""
    (tmp_path / "fake_trainer.py").write_text(FAKE, encoding="utf-8")
    plan = TrainingPlan(tmp_path / "config.yaml", ("rows=8",), tmp_path / "out", 4, "fake_trainer")
    return plan, {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}


def run(runs, environ, jobs=2):
    return run_all(runs, jobs=jobs, environ=environ, report=lambda: None)


def test_there_are_four_recipes_for_each_seed_and_each_has_a_folder(fake):
    runs = plan_runs(fake[0], seeds=2, steps=6)

    assert len({one.plan.out for one in runs}) == 8
    assert [one.seed for one in runs] == [0] * 4 + [1] * 4
    last = runs[-1].plan
    assert last.changes[:5] == ("rows=8", "credit=stages", "meta_policy=true", "seed=1", "steps=6")
    assert last.out == fake[0].out / "whole" / "seed-1"


def test_two_run_at_a_time_on_one_thread_each(fake):
    base, environ = fake

    failures = run(plan_runs(base, seeds=1, steps=None), environ)

    together = [line.split() for line in (base.out / "together").read_text(encoding="utf-8").splitlines()]
    assert failures == {}
    assert len(together) == 4
    assert max(int(count) for count, _ in together) <= 2
    assert {threads for _, threads in together} == {"1"}


def test_a_failed_run_stops_no_other_and_is_the_only_one_tried_again(fake):
    base, environ = fake
    runs = plan_runs(base, seeds=1, steps=None)

    failures = run(runs, {**environ, "FAIL_ON": "terminal"}, jobs=4)
    again = run(runs, environ, jobs=4)

    assert failures == {"answer-only GRPO, seed 0": "no room.", "answer-only + meta-policy, seed 0": "no room."}
    assert again == {}
    # Four at first, then the two that had failed.
    assert len((base.out / "together").read_text(encoding="utf-8").splitlines()) == 6


def test_an_ablation_leaves_table_figure_numbers_page_and_expected_curves(tmp_path):
    policy, out = tmp_path / "policy", tmp_path / "out"
    tokenizer = tiny_tokenizer()
    tiny_qwen3(len(tokenizer)).save_pretrained(policy)
    tokenizer.save_pretrained(policy)
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(policy=policy, out=out), encoding="utf-8")
    command = ["ablate", str(config), "--seeds", "1", "--steps", "1", "--json"]

    first, second = (CliRunner().invoke(APP, command) for _ in range(2))

    assert first.exit_code == 0, first.exception
    found = json.loads(first.stdout)
    assert [one["name"] for one in found["results"]] == ["answer_only", "ss_grpo", "answer_only_meta", "whole"]
    # Nothing is run again: the seconds of the steps are the same.
    assert json.loads(second.stdout) == found
    assert "<polyline" in (out / "ablation.html").read_text(encoding="utf-8")
    assert (out / "ablation.svg").read_text(encoding="utf-8").startswith("<svg")
    assert json.loads((out / "expected" / "whole.json").read_text(encoding="utf-8"))["seeds"] == 1


def test_the_report_of_an_ablations_folder_is_its_page(tmp_path):
    (tmp_path / "ablation.json").write_text('{"steps": 1, "command": "x", "results": []}', encoding="utf-8")

    result = CliRunner().invoke(APP, ["report", str(tmp_path)])

    assert "no ablation" in str(result.exception)
