"""The shares at which a rule gives the partial and the full score."""

import pytest

from rubricem_env.judge.rules.rules import _score_of_positive_share, _serve_requirements


class Plan:
    """The facts of a plan with five requirements of one term each."""

    requirements = ("alpha", "bravo", "charlie", "delta", "foxtrot")
    question_terms = ("alpha",)


@pytest.mark.parametrize(("served", "score"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_two_fifths_of_the_requirements_are_partial_and_four_fifths_are_full(served, score):
    text = " ".join(Plan.requirements[:served])
    scored = _serve_requirements(Plan, text, "search")
    assert scored.score == score
    assert scored.reason.startswith(f"{served} of 5 requirements have a search: ")


@pytest.mark.parametrize(("share", "score"), [(0.0, 0), (0.01, 1), (0.49, 1), (0.5, 2), (1.0, 2)])
def test_any_share_above_zero_is_partial_where_one_is_enough(share, score):
    assert _score_of_positive_share(share, full=0.5) == score
