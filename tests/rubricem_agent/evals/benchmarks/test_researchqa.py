import pytest

from rubricem_agent.evals.base import API_ERROR, ScoringError, Unparsed
from rubricem_agent.evals.benchmarks.researchqa import (
    RecordedRubric,
    coverage_of,
    level_of,
    parse_batch,
    score_run,
)

TWO = RecordedRubric(id="q", rubric=("a", "b"))
OTHER = RecordedRubric(id="r", rubric=("a",))


@pytest.mark.parametrize("label", ["barely", "Barely.", "1. Barely", ""])
def test_a_label_off_the_five_stops_with_a_key_error(label: str) -> None:
    with pytest.raises(ScoringError) as raised:
        level_of(label)

    assert raised.value.official == "KeyError"


def test_coverage_is_the_mean_of_the_levels_in_quarters() -> None:
    # 0, 1/4, 2/4, 3/4 and 1 add up to 2.5, over 5.
    assert coverage_of(["Not at all", "Barely", "Moderately", "Mostly", "Completely"]) == 0.5


def test_a_batch_needs_one_line_per_item_and_blank_lines_do_not_count() -> None:
    assert parse_batch(" Mostly \r\n\n Barely", size=2) == ["Mostly", "Barely"]
    assert isinstance(parse_batch("Mostly", size=2), Unparsed)


def test_a_question_is_dropped_after_three_wrong_counts_and_the_mean_goes_on_without_it() -> None:
    replies = {("q", 0): ["Mostly"], ("r", 0): ["Completely"]}

    score = score_run([TWO, OTHER], {"q": "x", "r": ""}, replies=replies)

    assert score == ([("r", 1.0)], 4)


def test_a_failed_request_drops_the_question_at_once() -> None:
    score = score_run([TWO], {"q": "x"}, replies={("q", 0): [API_ERROR, "Mostly\nMostly"]})

    assert score == ([], 1)


def test_items_go_out_in_batches_and_the_last_is_shorter() -> None:
    # Two batches of one: Completely 1 and Not at all 0, mean 0.5.
    replies = {("q", 0): ["Completely"], ("q", 1): ["Not at all"]}

    assert score_run([TWO], {"q": "x"}, replies=replies, batch_size=1) == ([("q", 0.5)], 2)


def test_a_question_without_an_answer_is_skipped_and_costs_no_call() -> None:
    assert score_run([TWO], {}, replies={}) == ([], 0)


def test_an_empty_rubric_divides_by_zero_and_says_how_many_calls_were_made() -> None:
    with pytest.raises(ScoringError) as raised:
        score_run([RecordedRubric(id="e", rubric=())], {"e": "x"}, replies={})

    assert (raised.value.official, raised.value.judge_calls) == ("ZeroDivisionError", 0)
