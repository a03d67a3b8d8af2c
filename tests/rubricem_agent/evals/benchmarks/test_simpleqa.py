import pytest

from rubricem_agent.evals.benchmarks.simpleqa import parse_standalone_letter, rates, strict_letter
from rubricem_agent.evals.scoring_error import ScoringError


def test_the_strict_letter_stands_alone_and_none_is_the_worst_case() -> None:
    assert parse_standalone_letter("Answer: C") == "C"
    assert parse_standalone_letter("INCORRECT") == "C"
    assert strict_letter("I cannot") == "B"


def test_no_answers_at_all_are_refused() -> None:
    with pytest.raises(ScoringError, match="no answer"):
        rates([])
