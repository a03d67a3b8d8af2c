"""Settings written in Python are refused in one sentence, and read from files as pydantic reads them."""

import pytest
from pydantic import BaseModel, ValidationError

from rubricem_env.domain.base import PositiveCount
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.settings import Settings


class SearchLimits(Settings):
    max_calls: PositiveCount = 10


class Whole(BaseModel):
    limits: SearchLimits


def test_a_call_with_what_is_no_setting_names_the_nearest_and_the_form():
    assert SearchLimits(max_calls=3).max_calls == 3
    with pytest.raises(ConfigError, match=r"SearchLimits has no setting 'max_call'; did you mean 'max_calls'\?"):
        SearchLimits(max_call=3)
    with pytest.raises(ConfigError, match=r"SearchLimits takes its settings by name: SearchLimits\(max_calls=\.\.\.\)"):
        SearchLimits(3)
    with pytest.raises(ConfigError, match=r"SearchLimits is refused: at max_calls: .*greater than or equal to 1"):
        SearchLimits(max_calls=0)


def test_inside_another_model_pydantic_says_where():
    with pytest.raises(ValidationError, match=r"limits\.max_calls"):
        Whole.model_validate({"limits": {"max_calls": 0}})
