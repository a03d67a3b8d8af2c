"""Scores by the share of terms that a text has, and rubrics in free words."""

import pytest

from rubricem_env.domain.base import Stage
from rubricem_env.judge.rubrics.files import read_rubrics
from rubricem_env.judge.rules.rules import score_cover

TERMS = ["width", "depth", "length", "colour"]


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("width depth length colour", 2),
        ("width depth length", 2),
        ("width depth", 1),
        ("width", 0),
        ("", 0),
    ],
)
def test_the_score_goes_by_the_share_of_terms_and_its_limits_are_included(text, score):
    assert score_cover(TERMS, text, full=0.75, partial=0.5, otherwise="without").score == score


def test_the_reason_names_the_terms_that_are_not_there_and_no_other():
    reason = score_cover(TERMS, "width depth", full=0.75, partial=0.5, otherwise="without", said="said").reason
    assert reason == "said; without length, colour"
    whole = score_cover(TERMS, " ".join(TERMS), full=0.75, partial=0.5, otherwise="without", said="said").reason
    assert whole == "said"


def test_the_polarity_of_a_row_is_that_of_its_weight():
    (half, flaw) = read_rubrics(
        '[{"title": "a", "description": "d", "weight": 0.5}, {"title": "b", "description": "d", "weight": -0.5}]', "f"
    )
    assert [(one.polarity, one.weight, one.persistent) for one in (half, flaw)] == [
        ("positive", 0.5, True),
        ("negative", 0.5, True),
    ]
    (planned,) = read_rubrics('[{"description": "d", "weight": 1, "stage": "plan"}]', "f")
    assert (planned.stage, planned.title, planned.persistent) == (Stage.PLAN, "d", False)
    (cut,) = read_rubrics(f'[{{"description": "{"d" * 100}", "weight": 1}}]', "f")
    assert cut.title == "d" * 80
