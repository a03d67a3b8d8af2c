"""`python trainers/verl_ssgrpo.py` where nothing that it trains with is installed."""

import json

import pytest

from trainers.verl_backend.command import main


@pytest.mark.parametrize(
    ("name", "steps", "phases", "judged"),
    [
        ("verl_rubricem_8b", "1400", ["trains on reflections", "trains on rollouts"], "judge: reflections"),
        ("verl_meta_policy_8b", "600", ["trains on reflections", "trains on rollouts"], "judge: reflections"),
        ("verl_ssgrpo_8b", "600", ["trains on rollouts"], None),
        ("verl_answer_only_8b", "600", ["trains on rollouts"], None),
    ],
)
def test_a_dry_run_tells_of_each_recipe_what_it_samples_trains_and_asks(
    name: str, steps: str, phases: list[str], judged: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--dry-run", "--config-name", name]) == 0
    told = capsys.readouterr().out

    heading = " ".join(told.split())
    assert heading.startswith(f"{name}: runs/sft_qwen3_8b/model")
    assert f"32 questions x 8 attempts a step, {steps} steps" in heading
    assert [line.split("  ")[1] for line in told.splitlines() if line.startswith("  trains on ")] == phases
    assert ("judge: reflections" in told) == (judged is not None)


def test_a_dry_run_as_json_takes_assumptions(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--dry-run", "--json", "--assume", "searches=0", "--assume", "spread=0", "--config-name"]
    assert main([*arguments, "verl_answer_only_8b"]) == 0
    document = json.loads(capsys.readouterr().out)

    assert document["config"] == "verl_answer_only_8b"
    calls = document["plans"]["16"]["calls of a step"]
    assert [number for what, number in calls.items() if "search" in what] == [0.0, 0.0]


def test_without_repeats_no_window_is_too_short_for_what_is_sampled_ahead(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--dry-run", "rubricem.ahead=3", "rubricem.repeats=false"]) == 0
    assert "are sampled ahead" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("actor_rollout_ref.actor.use_prefix_grouper=true", "no engine of veRL 0.9.1 reads it. Remove the key"),
        ("~trainer.val_before_train", "trainer.val_before_train is set, and the trainer rubricem_async"),
        ("trainer.v1.trainer_mode=rubricem_separate", "samples on GPUs of its own, and the config has nodes=0"),
        ("rubricem.ahead=3", "rubricem.window is 3, and 3 steps are sampled ahead"),
    ],
)
def test_a_dry_run_shows_the_plan_and_then_refuses_what_the_start_refuses(
    change: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--dry-run", change]) == 2
    told = capsys.readouterr()
    assert "16 GPUs" in told.out
    assert sentence in told.err
    assert main(["--preflight", change]) == 2
    assert sentence in capsys.readouterr().err


def test_changes_may_stand_before_and_after_the_options_and_the_last_of_a_key_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    steps = "trainer.total_training_steps"
    assert main([f"{steps}=9", "--dry-run", "--config-name", "verl_ssgrpo_8b", f"{steps}=7"]) == 0
    assert " 7 steps" in capsys.readouterr().out


@pytest.mark.parametrize("option", [[], ["--preflight"]])
def test_a_start_without_what_it_needs_ends_with_everything_that_is_missing(
    option: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # no driver, whatever machine this is
    assert main([*option, "actor_rollout_ref.model.path=none/qwen3-8b"]) == 2
    told = capsys.readouterr().err

    assert "  GPUs" in told
    assert "none/qwen3-8b has no config.json" in told
    assert told.rstrip().endswith("rubricem train-verl verl_almanac_cpu")


def test_a_config_that_is_not_there_and_a_key_that_is_none_end_with_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--config-name", "none"]) == 2
    refused = capsys.readouterr().err
    assert refused.startswith("verl_ssgrpo: cannot read the config")
    assert "a name: verl_almanac_cpu, verl_" in refused
    assert main(["--dry-run", "rubricem.windw=2"]) == 2
    assert "did you mean 'rubricem.window'" in capsys.readouterr().err
