"""The order of questions: windows, wrapping, and going on exactly where a run stopped."""

import json
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rubricem_agent.learn.curriculum import Curriculum
from rubricem_env.domain.errors import ConfigError, UsageError


def curriculum(num_keys: int = 7, *, batch_size: int = 2, window: int = 3, seed: int = 0) -> Curriculum:
    keys = [f"q{index}" for index in range(num_keys)]
    return Curriculum(keys, batch_size=batch_size, window=window, rng=np.random.default_rng(seed))


sizes = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 9))


def test_a_window_is_three_new_batches_and_then_the_same_three():
    batches = list(islice(curriculum(), 6))
    assert [batch.step for batch in batches] == [1, 2, 3, 4, 5, 6]
    assert [batch.encounter for batch in batches] == ["new"] * 3 + ["repeat"] * 3
    assert [batch.keys for batch in batches[:3]] == [batch.keys for batch in batches[3:]]


def test_without_repeats_every_step_has_new_questions_and_an_epoch_is_a_permutation():
    keys = [f"q{index}" for index in range(7)]
    stream = Curriculum(keys, batch_size=2, window=3, rng=np.random.default_rng(0), repeats=False)
    batches = list(islice(stream, 21))
    assert {batch.encounter for batch in batches} == {"new"}
    # 7 windows of 6 are 42 = 6 x 7 questions
    assert sorted(key for batch in batches for key in batch.keys) == sorted(keys * 6)
    # The first window is that of a run with repeats, which meets it twice.
    assert [batch.keys for batch in batches[:3]] == [batch.keys for batch in islice(curriculum(), 3)]


def test_a_run_without_repeats_goes_on_where_it_stopped_and_not_with_them():
    keys = [f"q{index}" for index in range(7)]

    def stream(repeats=False):
        return Curriculum(keys, batch_size=2, window=3, rng=np.random.default_rng(0), repeats=repeats)

    whole = list(islice(stream(), 12))
    first = stream()
    list(islice(first, 5))
    second = stream()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert list(islice(second, 7)) == whole[5:]
    with pytest.raises(UsageError, match="curriculum has repeats False, this run has True"):
        stream(repeats=True).load_state_dict(first.state_dict())


def test_new_questions_borrow_from_others_and_repeats_from_themselves():
    batches = list(islice(curriculum(window=1), 2))
    assert [batch.retrieval for batch in batches] == ["cross", "within"]


@given(sizes)
def test_no_question_stands_twice_in_a_window(size):
    batch_size, window, spare = size
    stream = curriculum(batch_size * window + spare, batch_size=batch_size, window=window)
    for _ in range(6):
        keys = [key for batch in islice(stream, window) for key in batch.keys]
        assert len(set(keys)) == batch_size * window
        list(islice(stream, window))


@given(sizes)
def test_every_question_comes_once_before_any_comes_a_third_time(size):
    batch_size, window, spare = size
    num_keys = batch_size * window + spare
    seen: dict[str, int] = {f"q{index}": 0 for index in range(num_keys)}
    for batch in islice(curriculum(num_keys, batch_size=batch_size, window=window), 2 * window * 12):
        for key in batch.keys if batch.encounter == "new" else ():
            seen[key] += 1
    assert max(seen.values()) - min(seen.values()) <= 2


def test_an_epoch_is_a_permutation_even_where_a_window_runs_over_its_end():
    # 7 questions, windows of 6: after 7 windows 42 = 6 x 7 have been drawn, each question 6 times
    stream = curriculum()
    drawn = [key for batch in islice(stream, 42) if batch.encounter == "new" for key in batch.keys]
    assert sorted(drawn) == sorted([f"q{index}" for index in range(7)] * 6)


@given(sizes, st.integers(0, 40))
@settings(max_examples=50)
def test_a_run_killed_at_any_step_goes_on_in_the_same_order(size, step):
    batch_size, window, spare = size
    shape = {"num_keys": batch_size * window + spare, "batch_size": batch_size, "window": window}
    first = curriculum(**shape, seed=4)
    list(islice(first, step))
    saved = json.dumps(first.state_dict())
    resumed = curriculum(**shape, seed=99)
    resumed.load_state_dict(json.loads(saved))
    assert list(islice(resumed, 25)) == list(islice(first, 25))


def test_a_saved_state_does_not_change_when_the_run_goes_on():
    stream = curriculum()
    next(stream)
    saved = stream.state_dict()
    before = json.dumps(saved)
    list(islice(stream, 20))
    assert json.dumps(saved) == before


@pytest.mark.parametrize("change", [{"num_keys": 8}, {"window": 2}, {"batch_size": 1}])
def test_a_state_of_other_questions_or_settings_is_refused(change):
    with pytest.raises(UsageError, match="the order of questions cannot go on"):
        curriculum(**{"num_keys": 7, **change}).load_state_dict(curriculum().state_dict())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"batch_size": 0}, "questions_per_step is 0; a step needs at least 1"),
        ({"window": 0}, "window is 0; at least 1 step lies between a question and its repeat"),
        (
            {"num_keys": 5},
            "2 questions a step and a window of 3 steps need 6 different questions; there are 5. Add questions, or "
            "lower questions_per_step or window (veRL: data.train_batch_size, rubricem.window).",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_in_a_sentence(settings, sentence):
    with pytest.raises(ConfigError) as refusal:
        curriculum(**settings)
    assert sentence in str(refusal.value)


def test_a_question_that_stands_twice_is_named():
    with pytest.raises(ConfigError, match="'b' is listed twice"):
        Curriculum(["a", "b", "c", "b"], batch_size=1, window=1, rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    "change",
    [
        *({"step": step} for step in (float("inf"), -1, 1.0, True, None, "1", 0, 7)),
        *({"held": held} for held in ([], [1], [0, 1, 2, 3, 4, 4], [0, 1, 2, 3, 4, 7], "012345", None)),
        *({"waiting": waiting} for waiting in ([], [-1], [7], [0, 1], [0.0], {"0": 1}, 3)),
        *({"rng": rng} for rng in (None, {}, {"bit_generator": "MT19937"}, 7)),
    ],
)
def test_a_state_that_no_run_has_saved_is_refused_and_changes_nothing(change):
    stream = curriculum()
    next(stream)
    before = stream.state_dict()
    with pytest.raises(UsageError, match="the curriculum's state h"):
        stream.load_state_dict({**before, **change})
    assert stream.state_dict() == before
