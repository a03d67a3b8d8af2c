"""Rubric files."""

import json

import pytest

from rubricem_env.domain.errors import FileFormatError
from rubricem_env.judge.rubrics.files import read_rubrics

ROW = {"title": "Names the year", "description": "Names the year of the study.", "weight": 2}


def test_a_row_of_weight_zero_is_dropped_and_needs_no_text():
    rows = [ROW, {"weight": 0}]
    assert [one.title for one in read_rubrics(json.dumps(rows), "rubrics.json")] == ["Names the year"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"polarity": None}, "polarity"),
        ({"persistent": None}, "persistent"),
        ({"description": ""}, "it has no description"),
        ({"weight": -1, "polarity": "positive"}, "give one or the other"),
        ({"stage": "plan", "persistent": True}, "only answer rubrics are persistent"),
    ],
)
def test_a_row_that_does_not_agree_with_itself_is_refused_by_number(wrong, message):
    with pytest.raises(FileFormatError, match=f"(?s)rubrics.json, rubric 2.*{message}"):
        read_rubrics(json.dumps([ROW, {**ROW, **wrong}]), "rubrics.json")
