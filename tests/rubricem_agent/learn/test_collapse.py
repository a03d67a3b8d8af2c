"""Collapse detectors on synthetic lines: each sign stops its own kind of lost run, none stops a healthy one."""

import numpy as np
import pytest

from rubricem_agent.learn.collapse import WatchSettings, find_collapse
from rubricem_records.runs.log_lines import StepLine

STAGES = ("plan", "research", "review", "answer")
WATCH = WatchSettings(window=2)


def line(step, *, words=40.0, repeats=0.05, valid=0.95, entropy=0.3, grad=0.5, kl=0.01, trains=True):
    scores = dict.fromkeys(STAGES, 0.5)
    told = {"plan": {"tokens": 100, "entropy": entropy, "kl": kl}}
    return StepLine.model_validate(
        {
            "step": step,
            "encounter": "new",
            "true": scores,
            "judged": scores,
            "task": {"loss": 0.1, "grad_norm": grad, "tokens": 100, "stages": told} if trains else None,
            "rollout_stats": {"answer_words": words, "repeated_calls": repeats, "valid": valid, "policy_tokens": 1000},
        }
    )


def run_that_ends_with(**changed):
    return [line(1), line(2), line(3), line(4, **changed), line(5, **changed)]


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"words": 5.0}, "shortest_answer"),
        ({"words": 400.0}, "longest_answer"),
        ({"repeats": 0.9}, "repeated_calls"),
        ({"entropy": 0.001}, "lowest_entropy"),
        ({"grad": 50.0}, "largest_gradient"),
        ({"kl": 5.0}, "largest_kl"),
        ({"valid": 0.2}, "fewest_valid"),
    ],
)
def test_each_sign_of_collapse_is_found_by_its_own_threshold(changed, key):
    lines = run_that_ends_with(**changed)

    found = find_collapse(lines, WATCH)

    assert found is not None
    assert f"watch.{key}" in found
    assert find_collapse(lines, WATCH.model_copy(update={key: None})) is None


@pytest.mark.parametrize(
    ("changed", "key", "first"),
    [
        ("words", "shortest_answer", 40.0),
        ("words", "longest_answer", 40.0),
        ("repeats", "repeated_calls", 1.0),
        ("entropy", "lowest_entropy", 0.3),
        ("grad", "largest_gradient", 0.5),
        ("kl", "largest_kl", 1.0),
        ("valid", "fewest_valid", 0.95),
    ],
)
def test_what_is_just_at_its_bound_is_allowed(changed, key, first):
    assert find_collapse(run_that_ends_with(**{changed: getattr(WATCH, key) * first}), WATCH) is None


def test_the_sentence_has_the_numbers_and_the_way_out():
    # First level (40 + 40) / 2, present level (4 + 4) / 2, bound 0.25 * 40.
    found = find_collapse(run_that_ends_with(words=4.0), WATCH)

    assert found is not None
    assert found.startswith(
        "step 5: answers are shrinking: words 4 over the last 2 steps, 40 over the first, and at least 10 is allowed"
    )
    assert "lower learning_rate" in found
    assert "watch='{shortest_answer: null}'" in found


def test_one_bad_step_is_no_collapse():
    assert find_collapse([line(1), line(2), line(3), line(4, words=20.0, kl=3.0), line(5)], WATCH) is None


def test_a_policy_that_never_wrote_a_valid_scaffold_cannot_lose_it():
    assert find_collapse([line(step, valid=0.0, words=0.0, entropy=0.0) for step in range(1, 9)], WATCH) is None


def test_steps_without_an_update_are_left_out():
    lines = [line(1), line(2), *(line(step, trains=False) for step in range(3, 9))]

    assert find_collapse(lines, WATCH) is None


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_run_with_noise_and_falling_entropy_is_left_alone(seed):
    rng = np.random.default_rng(seed)
    lines = [
        line(
            step,
            words=40 + rng.normal(0, 8) + step / 2,
            repeats=rng.uniform(0, 0.2),
            valid=rng.uniform(0.85, 1.0),
            entropy=0.3 * np.exp(-step / 40) + rng.uniform(0, 0.02),
            grad=rng.lognormal(-0.5, 0.5),
            kl=0.002 * step,
        )
        for step in range(1, 61)
    ]

    assert [find_collapse(lines[:end], WatchSettings()) for end in range(1, 61)] == [None] * 60
