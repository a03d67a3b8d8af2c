"""The windows of a plan with a folded context, against numbers worked out by hand."""

import json
from collections.abc import Callable

import pytest

from rubricem_env.domain.errors import ConfigError
from tests.trainers.verl_backend.planning.conftest import CONFIGS
from trainers.verl_backend.command import main
from trainers.verl_backend.planning.estimate import estimate_times, plan_disk
from trainers.verl_backend.planning.plan import make_plan
from trainers.verl_backend.planning.run_shape import KNOWN, Assumptions, RunShape
from trainers.verl_backend.planning.windows import Windows, assume_calls, assumed_ranges, plan_windows

QWEN = KNOWN["qwen3-8b"]
Recipe = Callable[..., RunShape]
FOLDED = (
    "++rubricem.context={fold_at: 18432, fold_to: 8192}",
    "++rubricem.limits={max_calls: 100, max_turns: 120, max_tokens: 196608}",
)


def test_a_hundred_calls_are_ten_times_what_ten_are_assumed_to_be(recipe: Recipe) -> None:
    assumed = assume_calls(Assumptions(), recipe(*FOLDED))
    assert (assumed.searches, assumed.written_tokens, assumed.longest_attempt) == (60, 65_000, 194_000)
    assert assume_calls(Assumptions(searches=80.0), recipe(*FOLDED), ["searches"]).searches == 80
    assert assumed_ranges(recipe(*FOLDED))["searches"][:2] == (50, 100)
    assert assume_calls(Assumptions(), recipe()) == Assumptions()


def test_a_context_grows_to_where_it_is_folded_each_time(recipe: Recipe) -> None:
    shape = recipe(*FOLDED)
    # 3,000 + 65,000 + 60 x 800 = 116,000 tokens; 18,432 in the first window, and 10,240 more in each other one.
    number = 1 + (116_000 - 18_432) / 10_240
    again = (number - 1) * 8_192
    windows = plan_windows(shape, assume_calls(Assumptions(), shape))
    assert windows == pytest.approx((number, (116_000 + again) / number, again))
    assert windows.all_tokens == pytest.approx(116_000 + again)


def test_without_a_fold_an_attempt_is_one_window(recipe: Recipe) -> None:
    whole = Assumptions().sequence
    assert plan_windows(recipe(), Assumptions()) == Windows(1.0, whole, 0.0)
    # 14,300 tokens are below 18,432.
    assert plan_windows(recipe("++rubricem.context={fold_at: 18432}"), Assumptions()) == Windows(1.0, whole, 0.0)
    assert make_plan(recipe(), QWEN, Assumptions())["windows of an attempt"] == {}
    assert estimate_times(recipe(), QWEN, Assumptions(), layout="async").fold_seconds == 0


def test_the_plan_says_what_reading_prompts_again_costs(recipe: Recipe) -> None:
    shape = recipe(*FOLDED)
    assumed = assume_calls(Assumptions(), shape)
    plan = make_plan(shape, QWEN, assumed)
    told, folds = plan["windows of an attempt"], (116_000 - 18_432) / 10_240
    assert told["number"] == pytest.approx(1 + folds)
    assert told["% of all tokens"] == pytest.approx(100 * folds * 8_192 / (116_000 + folds * 8_192))
    # The opening of 3,000 tokens is cached. A token of a row of 18,432 takes 2 x 8.19e9 operations and those of
    # attention; 256 attempts on 32 GPUs of 297e12 a second.
    operations = 2 * 8_190_735_360 + 2 * 36 * 32 * 128 * told["tokens of each"]
    assert told["seconds of a step, of sampling"] == pytest.approx(
        256 * folds * (8_192 - 3_000) * operations / 297e12 / 32
    )
    trained = plan["seconds of a step"]["trains on rollouts"]
    assert told["seconds of a step, of training"] == pytest.approx(trained * told["% of all tokens"] / 100)


def test_what_is_recorded_has_the_prompts_of_all_windows(recipe: Recipe) -> None:
    shape = recipe(*FOLDED)
    assumed = assume_calls(Assumptions(), shape)
    largest = assumed.in_the_largest_step
    with_prompts = plan_windows(shape, largest).all_tokens
    assert with_prompts > 1.5 * largest.sequence
    # 1,400 steps of 256 attempts, 4 bytes a token.
    assert plan_disk(shape, QWEN, assumed).record == pytest.approx(1_400 * 256 * with_prompts * 4 / 2**30)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["++rubricem.context={fold_at: 20000}", FOLDED[1]], "a window may have 28192 tokens .rubricem.context.fold_a"),
        ([FOLDED[1]], "max_tokens is 196608 and data.max_response_length 18432"),
    ],
)
def test_windows_longer_than_a_row_are_refused(recipe: Recipe, changes: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        recipe(*changes)


def test_the_shipped_file_plans_a_hundred_calls_in_the_papers_context(capsys: pytest.CaptureFixture[str]) -> None:
    assert (CONFIGS / "verl_rubricem_8b_long.yaml").is_file()
    assert main(["--config-name", "verl_rubricem_8b_long", "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    plan = document["plans"]["16"]
    assert 10 < plan["windows of an attempt"]["number"] < 11
    cheap, dear = document["range"]["seconds of a step"]
    assert cheap < plan["seconds of a step"]["total"] < dear


def refused(capsys: pytest.CaptureFixture[str], *changes: str) -> str:
    assert main(["--config-name", "verl_rubricem_8b_long", *changes, "--dry-run", "--json"]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("++actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean", "loss_agg_mode is seq-mean-token-mean"),
        ("++algorithm.rollout_correction.rollout_is=sequence", "rollout_is is sequence"),
        ("++algorithm.rollout_correction.rollout_rs=seq_mean_k3", "rollout_rs rejects whole sequences"),
        ("++actor_rollout_ref.actor.policy_loss={loss_mode: gspo}", "policy_loss.loss_mode is gspo"),
    ],
)
def test_what_verl_would_make_of_each_row_by_itself_is_refused(
    capsys: pytest.CaptureFixture[str], change: str, sentence: str
) -> None:
    told = refused(capsys, change)
    assert sentence in told
    assert "leave rubricem.context out" in told


@pytest.mark.parametrize(
    "change",
    [
        "++actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum",
        "++algorithm.rollout_correction.rollout_rs=token_k3",
    ],
)
def test_what_is_of_tokens_or_counts_rollouts_may_be_set(capsys: pytest.CaptureFixture[str], change: str) -> None:
    assert main(["--config-name", "verl_rubricem_8b_long", change, "--dry-run", "--json"]) == 0
