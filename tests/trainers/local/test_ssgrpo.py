"""The whole loop with a policy that knows nothing: it runs, records its steps, and resumes to the same numbers."""

import asyncio
import json
import time
from collections import deque
from pathlib import Path

import pytest
import torch

from rubricem_agent.config.judge import JudgeConfig
from rubricem_agent.learn.credit_methods import METHODS
from rubricem_agent.memory.inject import ReferenceSettings
from rubricem_agent.policy.local import load_tokenizer
from rubricem_agent.yaml_config import read_fields
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.judgement import Judgement, StageScore
from rubricem_env.judge.judgements import RolloutJudgement
from rubricem_env.judge.settings import JudgeSettings
from rubricem_env.world.judge import JudgeKnobs
from rubricem_records.files.packed_lines import PACKED, read_packed
from rubricem_records.files.run_lock import lock_folder
from rubricem_records.files.trimming import trim_log
from rubricem_records.rollouts.run_record import RECORD_FOLDER, ROLLOUTS
from tests.fakes import make_reflection
from tests.trainers.local.test_killed import write_config
from trainers.local.command import main
from trainers.local.crediting import credit_step
from trainers.local.run import make_run
from trainers.local.sampling import count_ahead, sample_and_judge
from trainers.local.settings import LocalAuditSettings, LocalConfig
from trainers.local.ssgrpo import train, train_step


def lines(config: LocalConfig) -> list[dict]:
    """The log without what a clock measured."""
    rows = [json.loads(line) for line in (config.out / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("seconds", None)
    return rows


def run(config: LocalConfig) -> list[dict]:
    asyncio.run(train(make_run(config)))
    return lines(config)


def test_a_run_meets_each_question_twice_and_grades_itself_before_and_after(config):
    rows = run(config)
    assert [row.get("encounter") for row in rows] == [None, "new", "repeat", None]
    assert ["held_out" in row for row in rows] == [True, False, False, True]
    assert (config.out / "model" / "config.json").is_file()
    # It can be played and trained on from there.
    assert load_tokenizer(config.out / "model").size == load_tokenizer(config.policy).size


def test_a_run_without_repeats_meets_new_questions_at_every_step_and_reflects_on_all(config):
    rows = run(config.model_copy(update={"repeats": False}))
    assert [row.get("encounter") for row in rows] == [None, "new", "new", None]
    recorded = list(read_packed(config.out / RECORD_FOLDER / f"{ROLLOUTS}{PACKED}"))
    assert len({json.loads(line)["rollout"]["trajectory"]["question"] for line in recorded}) == 2


def test_the_parts_of_a_steps_time_are_no_more_than_the_whole(config):
    begun = time.monotonic()
    run(config)
    whole = time.monotonic() - begun
    rows = [json.loads(line) for line in (config.out / "metrics.jsonl").read_text().splitlines()]
    steps = [row["seconds"] for row in rows if "encounter" in row]
    assert all(seconds.keys() == {"sample", "reflect", "update", "wait"} for seconds in steps)
    assert all(second >= 0 for seconds in steps for second in seconds.values())
    # Each is rounded to hundredths.
    assert 0 < sum(sum(seconds.values()) for seconds in steps) <= whole + 0.02 * len(steps)


def test_reflections_of_step_one_are_trained_on_in_step_two(config):
    rows = run(config)
    assert rows[1]["staleness"] == []
    assert rows[2]["staleness"] == [1]


@pytest.mark.no_cover
@pytest.mark.parametrize(("phase", "staleness"), [("new", [[], [1], []]), ("all", [[], [1], [1]])])
def test_repeats_are_reflected_on_as_the_phase_says(config, phase, staleness):
    # A window of one step: new, repeat, new. The third step trains on what the repeat was reflected on.
    rows = run(config.model_copy(update={"reflect_phase": phase, "steps": 3}))
    assert [row["staleness"] for row in rows if "staleness" in row] == staleness


def test_without_the_meta_policy_nothing_is_reflected_on(config):
    rows = run(config.model_copy(update={"meta_policy": False}))
    assert [row.get("staleness") for row in rows[1:3]] == [[], []]
    assert rows[2]["bank"] == 0


@pytest.mark.no_cover
def test_a_run_that_is_stopped_and_resumed_writes_the_same_log(config, tmp_path):
    whole = run(config)
    first = config.model_copy(update={"out": tmp_path / "parts", "steps": 1, "evaluate_every": 9})
    run(first)
    resumed = run(config.model_copy(update={"out": tmp_path / "parts"}))
    # the short run graded itself at its end, which is step 1
    assert [row for row in resumed if not (row["step"] == 1 and "held_out" in row)] == whole


@pytest.mark.no_cover
def test_with_drafts_on_threads_a_resumed_run_has_the_same_digits_to_the_last(tmp_path):
    # What is guessed decides how many tokens a pass draws, and so which rows share it. The policy repeats itself.
    fields = read_fields(write_config(tmp_path, steps=3), ["checkpoint_every=1", "threads=2", "rows=64"])
    whole, parts = (LocalConfig.model_validate({**fields, "out": tmp_path / name}, strict=False) for name in "wp")
    rows = [row for row in run(whole) if "encounter" in row]
    run(parts.model_copy(update={"steps": 1}))
    assert [row for row in run(parts) if "encounter" in row] == rows
    recorded = [(one.out / RECORD_FOLDER / f"{ROLLOUTS}{PACKED}").read_bytes() for one in (whole, parts)]
    assert recorded[0] == recorded[1]


def with_reflection_seed(config: LocalConfig, seed: int) -> LocalConfig:
    return config.model_copy(update={"reflection": config.reflection.model_copy(update={"seed": seed})})


@pytest.mark.no_cover
def test_a_run_resumes_where_the_seeds_that_were_open_are_written_out(config):
    before = with_reflection_seed(config, 0).model_copy(
        update={"judge": JudgeConfig(settings=JudgeSettings(seed=0)), "steps": 1}
    )
    run(before)
    assert [row["step"] for row in run(config)][-1] == 2


@pytest.mark.no_cover
def test_a_run_does_not_resume_with_another_seed_of_reflections(config):
    seven = config.model_copy(update={"seed": 7})
    run(with_reflection_seed(seven, 0).model_copy(update={"steps": 1}))
    with pytest.raises(UsageError, match=r"reflection\.seed was 0 and is 7"):
        run(seven)
    assert [row["step"] for row in run(with_reflection_seed(seven, 0))][-1] == 2


def audited(config: LocalConfig) -> LocalConfig:
    return config.model_copy(update={"held_out_judge": LocalAuditSettings(every=1, share=1.0)})


@pytest.mark.no_cover
def test_an_audited_run_records_both_judges_and_trains_the_same(config, tmp_path):
    plain = run(config)
    rows = run(audited(config.model_copy(update={"out": tmp_path / "audited"})))
    audits = [row.pop("audit") for row in rows if "encounter" in row]
    assert rows == plain
    assert [audit["sampled"] for audit in audits] == [config.group_size] * 2
    assert all(audit["judge"].keys() == audit["held_out"].keys() for audit in audits)


@pytest.mark.no_cover
def test_an_audited_run_that_is_resumed_writes_the_same_log(config, tmp_path):
    whole = run(audited(config))
    parts = audited(config.model_copy(update={"out": tmp_path / "parts", "evaluate_every": 9}))
    run(parts.model_copy(update={"steps": 1}))
    resumed = run(parts)
    assert [row for row in resumed if not (row["step"] == 1 and "held_out" in row)] == whole


def test_a_run_may_be_resumed_with_an_audit_that_it_began_without(config):
    run(config.model_copy(update={"steps": 1}))
    assert [bool(row.get("audit")) for row in run(audited(config)) if "encounter" in row] == [False, True]


def test_reflections_are_as_old_as_the_weights_that_drew_them(config):
    made = make_run(config.model_copy(update={"record": False}))
    made.learner.updates = 5
    made.learner.sync_sampler()

    async def play() -> list[int | None]:
        await train_step(made, 1, deque())
        made.learner.updates = 9
        done, _ = made.deferred.collect(step=2)
        await made.policy.aclose()
        return [result.policy_version for _, result in done]

    assert asyncio.run(play()) == [5]


def test_a_half_written_line_and_later_steps_are_dropped_from_the_log(tmp_path: Path):
    log = tmp_path / "metrics.jsonl"
    log.write_text('{"step": 1, "a": 0}\n{"step": 2, "a": 0}\n{"step": 2, "a"')
    trim_log(log, 1)
    assert log.read_text() == '{"step": 1, "a": 0}\n'


def test_a_run_that_trains_on_no_reflections_may_draw_them_without_chance(config):
    fields = {**config.model_dump(), "reflection": {"temperature": 0.0}, "meta_policy": False}
    assert LocalConfig.model_validate(fields, strict=False).reflection.temperature == 0


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("polcy: x\nout: y\n", "did you mean 'policy'"),
        ("policy: x\nout: y\nreflection: {num_candidate: 2}\n", "did you mean 'num_candidates'"),
        ("policy: nowhere\nout: y\n", "config.json"),
        ("policy: x\nout: y\nreflection: {temperature: 0}\n", "reflection.temperature is 0"),
    ],
)
def test_the_command_refuses_a_bad_config_with_one_sentence(tmp_path, capsys, content, sentence):
    path = tmp_path / "config.yaml"
    path.write_text(content)
    assert main(["--config", str(path)]) == 2
    shown = capsys.readouterr().err
    assert sentence in shown
    assert len(shown.splitlines()) == 1


def test_what_a_cut_has_left_of_a_line_is_dropped_wherever_it_stands(tmp_path: Path):
    log = tmp_path / "metrics.jsonl"
    log.write_text('1.0}\n{"step": 1, "a": {"b": 0}\n{"step": 1, "a": 0}\n')
    trim_log(log, 1)
    assert log.read_text() == '{"step": 1, "a": 0}\n'


def test_a_refused_start_leaves_the_settings_of_the_run_in_the_folder(config):
    run(config)
    kept = (config.out / "config.json").read_text()

    with pytest.raises(UsageError, match=r'settings or samples: credit was "stages" and is "answer_only"'):
        run(config.model_copy(update={"credit": "answer_only"}))

    assert (config.out / "config.json").read_text() == kept


def test_a_second_process_does_not_write_into_the_folder_of_a_running_one(config):
    lock = lock_folder(config.out)

    # In this process too: the lock belongs to whoever opened it.
    with pytest.raises(ConfigError, match=r"another process trains in .*choose another `out`"):
        run(config)

    lock.close()
    assert not (config.out / "metrics.jsonl").exists()


@pytest.mark.no_cover
def test_half_of_a_group_sees_the_lesson_and_all_of_it_is_trained_on_without(config):
    references = ReferenceSettings(share=0.5, distill_context=True)
    made = make_run(config.model_copy(update={"group_size": 4, "references": references}))
    made.bank.write(make_reflection("How wide is another river?", rubrics="Names the season."))

    async def step():
        judged = await sample_and_judge(made, next(made.curriculum))
        await made.policy.aclose()
        return judged

    judged = asyncio.run(step())
    decode = made.policy.tokenizer.decode
    prompts = [rollout.tokens.ids[: rollout.tokens.prompt_length] for rollout in judged.rollouts[0]]
    assert ["Names the season." in decode(prompt) for prompt in prompts] == [False, True, False, True]
    scores = [Judgement.of({stage: StageScore(score=score) for stage in STAGES}) for score in (0.0, 0.3, 0.6, 0.9)]
    rollouts = tuple(RolloutJudgement(judgement=one) for one in scores)
    group = judged.judgements[0].model_copy(update={"rollouts": rollouts})
    samples = credit_step(made, judged._replace(judgements=(group,))).samples
    assert [tuple(sample.token_ids[: len(prompts[0])]) for sample in samples] == [prompts[0]] * 4


def ahead_of(config: LocalConfig, **changes: object) -> LocalConfig:
    fields = {"ahead": 2, "steps": 6, "checkpoint_every": 4, "evaluate_every": 9, **changes}
    return config.model_copy(update={"knobs": JudgeKnobs(noise=0.5), **fields})


def test_steps_are_sampled_ahead_up_to_the_next_checkpoint(config):
    # Checkpoints after steps 4 and 6, the last: 3 and 4 wait at the end of step 2, and none at the end of step 4.
    assert [count_ahead(ahead_of(config), step) for step in range(1, 7)] == [2, 2, 1, 0, 1, 0]


@pytest.mark.no_cover
def test_a_run_that_samples_ahead_resumes_to_the_same_numbers(config, tmp_path):
    whole = run(ahead_of(config))
    parts = ahead_of(config, out=tmp_path / "parts")
    run(ahead_of(parts, steps=4))
    resumed = run(parts)
    assert [row for row in resumed if not (row["step"] == 4 and "held_out" in row)] == whole


def test_what_is_sampled_ahead_is_not_of_the_weights_in_training(config):
    run = make_run(ahead_of(config))
    trained, drawn = (next(model.parameters()) for model in (run.learner.policy, run.learner.sampler))
    with torch.no_grad():
        trained += 1.0
    assert not torch.equal(trained, drawn)
    run.learner.sync_sampler()
    assert torch.equal(trained, drawn)


@pytest.mark.no_cover
def test_every_method_trains_in_the_local_trainer(config):
    for method in METHODS:
        changes = {"credit": method, "out": config.out / method, "meta_policy": False, "steps": 1, "advantage_rms": 1.0}
        assert run(config.model_copy(update=changes))[1]["encounter"] == "new"


def test_the_seconds_of_a_step_are_what_a_clock_shows_and_no_more_than_the_run_took(config):
    begun = time.monotonic()
    run(config)
    took = time.monotonic() - begun
    rows = [json.loads(line) for line in (config.out / "metrics.jsonl").read_text().splitlines()]
    steps = [row["seconds"] for row in rows if row.get("encounter")]
    assert [set(step) for step in steps] == [{"sample", "reflect", "update", "wait"}] * 2
    # Each of four numbers is rounded to a hundredth, so a step may claim 0.02 s too much.
    assert sum(sum(step.values()) for step in steps) <= took + 2 * 0.02
    assert all(seconds >= -0.01 for step in steps for seconds in step.values())
    # An update of so small a model can round to nothing.
    assert all(step["sample"] > 0 for step in steps)
