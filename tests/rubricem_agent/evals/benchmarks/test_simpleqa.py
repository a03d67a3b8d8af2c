import pytest

from rubricem_agent.evals.base import ScoringError
from rubricem_agent.evals.benchmarks.simpleqa import (
    official_metrics,
    parse_letter,
    parse_standalone_letter,
    rates,
    strict_letter,
)


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("B.", "B"),
        ("INCORRECT", "C"),
        ("CORRECT", "C"),
        ("NOT_ATTEMPTED", "A"),
        ("Answer: C", "A"),
        ("b", "C"),
        ("", "C"),
    ],
)
def test_the_official_letter_is_the_first_capital_a_b_or_c_anywhere(reply: str, letter: str) -> None:
    assert parse_letter(reply) == letter


def test_the_strict_letter_stands_alone_and_none_is_the_worst_case() -> None:
    assert parse_standalone_letter("Answer: C") == "C"
    assert parse_standalone_letter("INCORRECT") == "C"
    assert strict_letter("I cannot") == "B"


def test_f1_is_the_harmonic_mean_of_the_rate_and_the_accuracy_among_attempted() -> None:
    # 2 correct, 1 incorrect, 1 not attempted: c = 1/2, q = 2/3, F1 = 2*(1/3)/(7/6) = 4/7.
    score = rates(["A", "A", "B", "C"])

    assert score == pytest.approx(
        {
            "correct": 0.5,
            "incorrect": 0.25,
            "not_attempted": 0.25,
            "accuracy_given_attempted": 2 / 3,
            "f1": 4 / 7,
        }
    )


def test_rates_without_an_attempt_are_zero_and_not_an_error() -> None:
    assert list(rates(["C"]).values()) == [0.0, 0.0, 1.0, 0.0, 0.0]


def test_the_official_spread_is_the_population_deviation_of_the_indicator() -> None:
    # One of two correct: deviation 1/2.
    assert official_metrics(["A", "B"])["is_correct:std"] == 0.5


@pytest.mark.parametrize("score", [rates, official_metrics])
def test_no_answers_at_all_are_refused(score: object) -> None:
    with pytest.raises(ScoringError, match="no answer"):
        score([])  # type: ignore[operator]
