"""A run is resumed with the settings that it was started with."""

from pathlib import Path

import pytest

from rubricem_agent.learn.resume_identity import refuse_other_run
from rubricem_env.domain.errors import FileFormatError, UsageError

FOLDER = Path("out")


def test_the_same_settings_are_let_through():
    refuse_other_run(FOLDER, "lr=0.1 steps=3", "lr=0.1 steps=3")


@pytest.mark.parametrize(
    ("saved", "here"),
    [
        ("Settings(lr=0.1, steps=3)", "Settings(lr=0.2, seed=1, steps=3)"),
        ('{"lr": 0.1, "steps": 3}', '{"lr": 0.2, "seed": 1, "steps": 3}'),
    ],
)
def test_each_setting_that_differs_is_named_with_both_values_and_no_other(saved, here):
    with pytest.raises(UsageError) as refusal:
        refuse_other_run(FOLDER, saved, here)
    assert "samples: lr was 0.1 and is 0.2; seed was not set and is 1. Resuming" in str(refusal.value)


def test_damaged_settings_are_said_to_be_damaged():
    with pytest.raises(FileFormatError, match="out holds damaged settings"):
        refuse_other_run(FOLDER, "{", "{}")
