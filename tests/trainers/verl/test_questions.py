"""Where the questions of a run come from, and its log."""

import json
from types import SimpleNamespace

import pytest

from rubricem_agent.learn.metrics import METRICS_FILE, read_log
from rubricem_agent.learn.monitor import CollapseError
from rubricem_agent.viewer.logs import read_run
from rubricem_env.domain.errors import ConfigError
from trainers.verl_backend.reporting import VerlLog, update_told
from trainers.verl_backend.settings import load_training_questions, read_section


def test_the_almanac_brings_its_training_questions_and_their_truth():
    found = load_training_questions(read_section({"almanac": {}}))
    assert set(found.queries) == set(found.almanac)
    assert {question.split for question in found.almanac.values()} == {"train"}


def told(valid: float = 1.0):
    stages = {"plan": 0.5, "research": 0.5, "review": 0.5, "answer": 0.5}
    habits = {"answer_words": 30.0, "repeated_calls": 0.0, "valid": valid, "policy_tokens": 100}
    return {"encounter": "new", "true": stages, "judged": stages, "habits": habits, "seconds": {"gen": 1.0}}


def test_the_log_is_one_that_the_reports_read_and_a_resumed_run_writes_its_steps_again(tmp_path):
    log = VerlLog(tmp_path, read_section({"almanac": {}}))
    log.begin(0)
    for step in (1, 2, 3):
        log.write(step, told())
    log.begin(2)
    log.write(3, told())
    assert [line.step for line in read_log(tmp_path).steps] == [1, 2, 3]
    assert len((tmp_path / METRICS_FILE).read_text().splitlines()) == 3


def write_steps(log, valid):
    for step, share in enumerate(valid, start=1):
        log.write(step, told(share))


def test_a_run_that_is_lost_is_stopped_and_the_alarm_written_down(tmp_path):
    log = VerlLog(tmp_path, read_section({"almanac": {}}))
    log.begin(0)
    with pytest.raises(CollapseError):
        write_steps(log, [1.0] * 20 + [0.0] * 40)
    assert "alarm" in json.loads((tmp_path / METRICS_FILE).read_text().splitlines()[-1])


def test_an_update_that_did_not_take_place_is_none():
    assert update_told({}, None) is None
    metrics = {"actor/grad_norm": 0.5, "actor/loss": 0.1, "reflection/actor/grad_norm": 2.0}
    stages = {"plan": {"tokens": 3, "entropy": 1.0, "kl": 0.0, "loss_share": 1.0}}
    assert update_told(metrics, stages) == {"loss": 0.1, "grad_norm": 0.5, "tokens": 3, "stages": stages}
    assert update_told(metrics, None, prefix="reflection/")["grad_norm"] == 2.0


def run_config():
    actor = SimpleNamespace(optim=SimpleNamespace(lr=5e-7), use_kl_loss=True, kl_loss_coef=0.001)
    return SimpleNamespace(
        trainer=SimpleNamespace(
            v1=SimpleNamespace(trainer_mode="rubricem_async"), total_training_steps=1_400, save_freq=10
        ),
        data=SimpleNamespace(train_batch_size=32),
        actor_rollout_ref=SimpleNamespace(
            model=SimpleNamespace(path="Qwen3"), actor=actor, rollout=SimpleNamespace(n=8, temperature=1.0)
        ),
    )


def test_the_settings_of_a_run_tell_the_reports_its_recipe_and_its_length(tmp_path):
    log = VerlLog(tmp_path, read_section({"almanac": {}, "credit": "terminal", "meta_policy": False}))
    log.leave_settings(run_config())
    log.begin(0)
    (tmp_path / "metrics.jsonl").touch()
    run = read_run(tmp_path)
    assert run.title == "answer-only GRPO"
    assert (run.settings["steps"], run.settings["questions_per_step"], run.settings["learning_rate"]) == (
        1_400,
        32,
        5e-7,
    )


def test_a_folder_that_cannot_be_made_is_refused_by_the_name_of_its_key(tmp_path):
    (tmp_path / "file").write_text("in the way")
    log = VerlLog(tmp_path / "file" / "run", read_section({"almanac": {}}))
    with pytest.raises(ConfigError, match=r"cannot write to trainer\.default_local_dir"):
        log.leave_settings(run_config())
