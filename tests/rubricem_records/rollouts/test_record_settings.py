"""How a config says what is recorded: all, nothing, or a sample."""

import pytest
from pydantic import TypeAdapter, ValidationError

from rubricem_records.rollouts.record_settings import WHOLE, Recorded, RecordSettings

ADAPTER = TypeAdapter(Recorded)


@pytest.mark.parametrize(
    ("given", "settings"),
    [(True, WHOLE), (False, None), (None, None), ({"every": 10}, RecordSettings(every=10)), ({}, WHOLE)],
)
def test_a_switch_or_a_sample(given, settings):
    assert ADAPTER.validate_python(given) == settings


@pytest.mark.parametrize("given", [{"every": 0}, {"attempts": 0}, {"often": 1}, "yes", 1])
def test_another_value_is_refused(given):
    with pytest.raises(ValidationError):
        ADAPTER.validate_python(given)


@pytest.mark.parametrize(
    ("attempts", "kept"), [(None, [0, 1, 2, 3]), (1, [0]), (2, [0, 2]), (3, [0, 1, 2]), (9, [0, 1, 2, 3])]
)
def test_the_attempts_of_a_group_are_spread_evenly(attempts, kept):
    assert RecordSettings(attempts=attempts).choose(range(4)) == kept


def test_a_group_without_attempts_has_none_to_record():
    assert WHOLE.choose([]) == []
