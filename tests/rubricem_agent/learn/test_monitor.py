"""What a trainer does after each step: it stops a lost run and writes a warning down once."""

import pytest

from rubricem_agent.learn.collapse import WatchSettings
from rubricem_agent.learn.drift import DriftSettings
from rubricem_agent.learn.monitor import watch_run
from rubricem_env.domain.errors import RubricEMError
from rubricem_records.runs.run_log import append_line, read_log

WATCH, DRIFT = WatchSettings(window=1, fewest_valid=0.5), DriftSettings(window=1)


def write(folder, number, *, valid=1.0, judge=0.5, tokens=10, **fields):
    rollout_stats = {"answer_words": 40, "repeated_calls": 0.0, "valid": valid, "policy_tokens": tokens}
    line = {
        "step": number,
        "encounter": "new",
        "true": {"plan": 0.5},
        "judged": {"plan": judge},
        "rollout_stats": rollout_stats,
    }
    append_line(folder / "metrics.jsonl", {**line, **fields})


def test_a_lost_run_is_stopped_with_a_sentence(tmp_path):
    write(tmp_path, 1)
    write(tmp_path, 2, valid=0.1)

    with pytest.raises(RubricEMError, match="step 2: the scaffold is falling apart") as stopped:
        watch_run(tmp_path, WATCH)

    assert [line.warning for line in read_log(tmp_path).warnings] == [str(stopped.value)]


def test_a_warning_is_written_when_it_begins_and_training_goes_on(tmp_path):
    for number, judge in ((1, 0.5), (2, 0.5), (3, 0.9), (4, 0.9)):
        write(tmp_path, number, judge=judge)
        watch_run(tmp_path, WATCH, DRIFT)

    (warning,) = read_log(tmp_path).warnings
    assert warning.step == 3


def test_a_drift_is_not_looked_for_where_it_is_not_asked_for(tmp_path):
    for number, judge in ((1, 0.5), (2, 0.9)):
        write(tmp_path, number, judge=judge)
        watch_run(tmp_path, WATCH)
    assert read_log(tmp_path).warnings == []


def test_judges_that_part_are_warned_of_once_and_the_run_goes_on(tmp_path):
    for number, warning in enumerate(("", "the judges part", "the judges part"), start=1):
        write(tmp_path, number, audit={"judge": {}, "held_out": {}, "gap": 0.1, "warning": warning})
        watch_run(tmp_path, WATCH)
    assert [line.warning for line in read_log(tmp_path).warnings] == ["step 2: the judges part"]


def test_a_policy_without_a_valid_attempt_for_three_steps_is_warned_of_once(tmp_path):
    for number, valid in enumerate((0.5, 0.0, 0.0, 0.0, 0.0), start=1):
        write(tmp_path, number, valid=valid)
        watch_run(tmp_path, WatchSettings())

    (warning,) = read_log(tmp_path).warnings
    assert warning.warning.startswith("step 4: no attempt of the last 3 steps follows the scaffold (0% valid)")


def test_a_step_without_a_token_is_warned_of_at_once_and_once(tmp_path):
    for number in (1, 2):
        write(tmp_path, number, tokens=0)
        watch_run(tmp_path, WatchSettings())

    (warning,) = read_log(tmp_path).warnings
    assert warning.warning.startswith("step 1: no attempt has a token of the policy.")
