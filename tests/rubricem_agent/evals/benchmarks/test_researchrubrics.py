"""The verdict on one item of ResearchRubrics: a number, or nothing."""

import pytest

from rubricem_agent.evals.benchmarks.researchrubrics import CriterionVerdict, parse_finite_verdict
from rubricem_agent.evals.reply_parsing import Unparsed


@pytest.mark.parametrize("score", ["NaN", "Infinity", '"nan"', "null", "1e999"])
def test_a_reply_whose_score_is_no_finite_number_is_unreadable_and_no_score(score):
    reply = f'{{"verdict": "met", "score": {score}, "confidence": 1.0}}'
    assert parse_finite_verdict(reply) == Unparsed("score or confidence is not a number")


def test_a_finite_score_is_read():
    reply = '{"verdict": "met", "score": 0.5, "confidence": 1.0}'
    assert parse_finite_verdict(reply) == CriterionVerdict("met", 0.5)
