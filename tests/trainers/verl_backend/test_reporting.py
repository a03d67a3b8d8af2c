"""Metrics of a step, its log, and the record of groups."""

import asyncio
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest

from rubricem_agent.learn.step import CreditedGroup, describe_groups
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_records.runs.log_lines import parse_line
from rubricem_records.runs.recorded_run import read_run
from rubricem_viewer.record_reader import RunRecordReader
from tests.trainers.verl_backend.test_judge_service import (
    ATTEMPTS,
    NEW,
    QUERY,
    REPEAT,
    attempt,
    identity,
    make_service,
    reflected,
    save,
    submit_group,
    with_tokens,
)
from trainers.verl_backend.questions import load_training_questions
from trainers.verl_backend.reporting import stage_means, update_metrics, write_settings
from trainers.verl_backend.settings import read_section


async def judged_groups(model_folder, *, failure_rate: float = 0.0) -> list[CreditedGroup]:
    service = make_service(model_folder, almanac={"knobs": {"failure_rate": failure_rate}}, meta_policy=False)
    rollouts = [with_tokens(await attempt(text), (0, 3)) for text in ATTEMPTS]
    calls = [service.submit(NEW, one, group="g", index=index) for index, one in enumerate(rollouts)]
    await asyncio.gather(*calls)
    return service._take(5, ["g"])


async def test_the_means_of_a_step_are_over_all_its_rollouts(model_folder):
    told = describe_groups(await judged_groups(model_folder))
    # One answer of four words and one of eight.
    assert told["rollout_stats"] == {"answer_words": 6.0, "repeated_calls": 0.0, "valid": 0.0, "policy_tokens": 4}
    assert (told["encounter"], told["lost"], told["trained_rollouts"], told["fallbacks"]) == ("new", 0, 2, 0)
    assert 0 < told["true"]["answer"] < 1


async def test_a_step_that_mixes_two_steps_of_the_curriculum_says_both(model_folder):
    service = make_service(model_folder, meta_policy=False)
    await submit_group(service, NEW, group="of step 1")
    await submit_group(service, REPEAT, group="of step 2")

    report = await service.report(5, ["of step 1", "of step 2"])

    assert (report["encounter"], report["curriculum"]) == ("new and repeat", [1, 2])


async def test_a_stage_without_a_score_is_none_and_not_zero(model_folder):
    groups = await judged_groups(model_folder, failure_rate=1.0)
    told = describe_groups(groups)
    assert told["judged"]["answer"] is None
    assert (told["lost"], told["trained_rollouts"]) == (2, 0)
    assert ["did not answer" in failure for failure in groups[0].failures] == [True, True]


async def test_a_step_outside_the_almanac_has_no_truth_and_its_line_can_be_read(model_folder):
    (group,) = await judged_groups(model_folder)
    unknown = [one.model_copy(update={"true": None}) for one in group.rollouts]
    told = describe_groups([group.model_copy(update={"rollouts": tuple(unknown)})])
    assert told["true"] == {}
    assert parse_line({"step": 1, **told}).judged["answer"] == told["judged"]["answer"]


def test_stages_are_told_apart_token_by_token():
    told = stage_means(
        np.array([0, 0, 3, -1]),
        np.array([1.0, -1.0, 2.0, 9.0]),
        entropy=np.array([1.0, 3.0, 5.0, 9.0]),
        kl=np.array([0.0, 0.2, 0.4, 9.0]),
    )
    # plan: 2 tokens of weight 1 each; answer: 1 token of weight 2; the tool's token counts nowhere
    assert told["plan"] == {"tokens": 2, "entropy": 2.0, "kl": 0.1, "loss_share": 0.5}
    assert told["answer"] == {"tokens": 1, "entropy": 5.0, "kl": 0.4, "loss_share": 0.5}
    assert "review" not in told


def read(run) -> RunRecordReader:
    reader = RunRecordReader(run)
    reader.refresh()
    return reader


def rollouts_of(reader, group_id: str):
    rows = reader.table.of_group(reader.find_group(group_id)).tolist()
    return sorted((reader.read_rollout(row) for row in rows), key=lambda one: one.attempt)


async def record(service, step: int, *groups: str) -> None:
    await service.report(step, groups)
    await service.finish_record()


async def recording_service(model_folder, run, **changes):
    service = make_service(model_folder, **changes)
    await service.begin_record(run, 0)
    return service


async def test_a_group_is_recorded_with_truth_and_credit_under_the_step_that_took_it(model_folder, tmp_path):
    service = await recording_service(model_folder, tmp_path, meta_policy=False)
    rollouts = [with_tokens(await attempt(text), (3, 3)) for text in ATTEMPTS]
    calls = [service.submit(NEW, one, group="g", index=index) for index, one in enumerate(rollouts)]
    await asyncio.gather(*calls)
    await record(service, 5, "g")

    reader = read(tmp_path)
    first, second = rollouts_of(reader, "5-0")
    assert reader.read_group(0).question == QUERY.question
    assert first.true[3] < second.true[3]
    # Of two, the worse one is a deviation below the mean, the better one as far above.
    assert (first.advantages[3], second.advantages[3]) == pytest.approx((-1.0, 1.0), abs=1e-5)
    assert (first.trained, second.trained) == (True, True)


async def test_a_group_that_no_step_has_taken_yet_is_not_in_the_record(model_folder, tmp_path):
    service = await recording_service(model_folder, tmp_path, meta_policy=False)
    await submit_group(service, group="ahead")
    await submit_group(service, group="now")
    await submit_group(service, group="second update")
    await record(service, 1, "now")
    await record(service, 1, "second update")
    assert [row.id for row in read(tmp_path).groups] == ["1-0", "1-1"]
    await record(service, 2, "ahead")
    assert [row.id for row in read(tmp_path).groups] == ["1-0", "1-1", "2-0"]


async def test_the_lessons_that_were_shown_and_the_bank_stand_in_the_record(model_folder, tokenizer, tmp_path):
    service = await recording_service(model_folder, tmp_path)
    await reflected(service, tokenizer)
    await record(service, 1, "g")
    assert await service.references(REPEAT, 0)
    await submit_group(service, REPEAT, group="h")
    await record(service, 2, "h")

    reader = read(tmp_path)
    assert [[one.item for one in row.lessons] for row in reader.groups] == [[], [1]]
    _, *lessons = (tmp_path / "record" / "lessons.jsonl").read_text().splitlines()
    assert [(json.loads(line)["step"], json.loads(line)["item"]["id"]) for line in lessons] == [(1, 1)]


async def test_a_resumed_run_has_the_groups_that_were_judged_ahead_of_their_step(model_folder, tmp_path):
    service = await recording_service(model_folder, tmp_path, meta_policy=False)
    await submit_group(service, group="ahead")
    await save(service, tmp_path / "kept", held={"ahead"})
    await record(service, 2, "ahead")

    other = make_service(model_folder, meta_policy=False)
    await other.begin_record(tmp_path, 1)
    await other.load(tmp_path / "kept", step=1, identity=identity(other))
    assert len(read(tmp_path).groups) == 0
    await record(other, 2, "ahead")
    assert [row.id for row in read(tmp_path).groups] == ["2-0"]


async def test_a_group_from_before_the_record_was_switched_on_is_in_it(model_folder, tmp_path):
    service = make_service(model_folder, meta_policy=False)
    await submit_group(service, group="before")
    await service.begin_record(tmp_path, 0)
    await record(service, 1, "before")
    assert len(read(tmp_path).groups) == 1


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.exists("/dev/full"), reason="needs a device that is always full")
async def test_a_full_disk_is_told_in_a_sentence_with_the_switch(model_folder, tmp_path):
    service = await recording_service(model_folder, tmp_path, meta_policy=False)
    await submit_group(service)
    path = tmp_path / "record" / "groups.jsonl.gz"
    path.unlink()
    path.symlink_to("/dev/full")
    with pytest.raises(UsageError, match=r"cannot write to .*record.*rubricem\.record=false"):
        await record(service, 1, "g")


async def test_a_folder_that_cannot_be_written_is_refused_at_the_start(model_folder, tmp_path):
    (tmp_path / "record").write_text("in the way")
    with pytest.raises(UsageError, match=r"cannot write to .*record"):
        await make_service(model_folder).begin_record(tmp_path, 0)


def test_the_almanac_brings_its_training_questions_and_their_truth():
    queries, truth = load_training_questions(read_section({"almanac": {}}))
    assert set(queries) == set(truth)
    assert {question.split for question in truth.values()} == {"train"}


SETTINGS = read_section({"almanac": {}, "credit": "answer_only", "meta_policy": False})


def test_an_update_that_did_not_take_place_is_none():
    assert update_metrics({}, None) is None
    metrics = {"actor/grad_norm": 0.5, "actor/loss": 0.1, "reflection/actor/grad_norm": 2.0}
    stages = {"plan": {"tokens": 3, "entropy": 1.0, "kl": 0.0, "loss_share": 1.0}}
    unknown = {"rollout_kl": None, "capped": None}
    assert update_metrics(metrics, stages) == {"loss": 0.1, "grad_norm": 0.5, "tokens": 3, "stages": stages, **unknown}
    assert update_metrics(metrics, None, prefix="reflection/")["grad_norm"] == 2.0


def test_each_update_tells_how_far_its_tokens_were_from_the_policy_and_how_many_were_cut():
    metrics = {"actor/grad_norm": 0.5, "rollout_corr/kl": 0.01, "rollout_corr/rollout_is_ratio_fraction_high": 0.002}
    metrics |= {f"reflection/{name}": 2 * value for name, value in metrics.items()}
    told = [update_metrics(metrics, None, prefix=prefix) for prefix in ("", "reflection/")]
    assert [(one["rollout_kl"], one["capped"]) for one in told] == [(0.01, 0.002), (0.02, 0.004)]


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
    write_settings(tmp_path, SETTINGS, run_config())
    (tmp_path / "metrics.jsonl").touch()
    run = read_run(tmp_path)
    assert run.title == "answer-only GRPO"
    assert (run.settings["steps"], run.settings["questions_per_step"]) == (1_400, 32)


def test_a_folder_that_cannot_be_made_is_refused_by_the_name_of_its_key(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"cannot write to trainer\.default_local_dir"):
        write_settings(tmp_path / "file" / "run", SETTINGS, run_config())
