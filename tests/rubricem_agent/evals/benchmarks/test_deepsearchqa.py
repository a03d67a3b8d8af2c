import json

import pytest

from rubricem_agent.evals.benchmarks.deepsearchqa import (
    BENCHMARK,
    Outcome,
    Rating,
    macro_scores,
    official_summary,
    parse_rating,
    rate,
)
from rubricem_agent.evals.grading import Grade
from rubricem_agent.evals.scoring_error import ScoringError
from rubricem_agent.evals.suite import rules_for


def rating(**changes: object) -> str:
    node = {"Explanation": "e", "Correctness Details": {"a": True, "b": False}, "Excessive Answers": ["c"]}
    return json.dumps({"Answer Correctness": node | changes})


def test_no_expected_part_counts_as_correct_with_all_measures_zero() -> None:
    nothing = Rating(0, 0, 0).measures

    assert (nothing["fully_correct"], nothing["fully_incorrect"]) == (1, 0)
    assert [nothing[name] for name in ("precision", "recall", "f1_score")] == [0, 0, 0]
    assert Rating(0, 0, 1).measures["correct_with_excessive"] == 1


def test_a_json_fence_is_read_with_prose_around_it_and_a_bare_fence_is_not() -> None:
    assert isinstance(parse_rating(f"Sure:\n```json\n{rating()}\n```\nDone"), Rating)
    assert parse_rating(f"```\n{rating()}\n```") == "invalid_rater"


def test_a_missing_excess_is_fine() -> None:
    reply = '{"Answer Correctness": {"Explanation": "e", "Correctness Details": {"a": true}}}'

    assert parse_rating(reply) == Rating(1, 1, 0)


def test_an_empty_answer_is_excluded_before_the_reply_is_looked_at() -> None:
    assert rate(" ", "[1]") == "empty_response"
    assert rate("x", "") == "empty_rater"


def test_exclusions_leave_the_macro_means_and_count_zero_in_strict_mode() -> None:
    # One full mark and one exclusion: 1 officially, 1/2 strictly.
    outcomes: list[Outcome] = [Rating(1, 1, 0), "empty_response"]

    assert macro_scores(outcomes) == {"precision": 1, "recall": 1, "f1_score": 1}
    assert macro_scores(["empty_rater"]) is None
    for mode, share in (("official", 1.0), ("strict", 0.5)):
        grader = BENCHMARK.grader(rules_for("deepsearchqa", mode))
        grades = [Grade(1.0, 1.0, record=Rating(1, 1, 0)._asdict()), grader.excluded("empty_response")]
        assert grader.total(grades)["fully_correct"] == share


def test_the_summary_counts_exclusions_and_a_stopped_rating_is_valid_but_evaluated_nowhere() -> None:
    summary = official_summary([Rating(1, 1, 0), None, "invalid_rater"])

    assert (summary["num_valid_ratings"], summary["num_answer_correctness_evaluated"]) == (2, 1)
    assert summary["pct_invalid_auto_rater_response"] == 33.33
    assert summary["precision"] == "100.00%"


def test_a_summary_of_nothing_fails_the_official_assertion() -> None:
    with pytest.raises(ScoringError) as raised:
        official_summary([])

    assert raised.value.official == "AssertionError"
