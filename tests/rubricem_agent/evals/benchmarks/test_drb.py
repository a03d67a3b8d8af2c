import json

import pytest
from pydantic import JsonValue

from rubricem_agent.evals.base import Unparsed
from rubricem_agent.evals.benchmarks.drb import (
    DIMENSIONS,
    RaceCriterion,
    TaskCriteria,
    aggregate,
    judge_task,
    parse_scores,
    rescue_json,
    result_text,
    score_task,
    weight_of,
)

CRITERIA = TaskCriteria(
    id=1,
    dimension_weight=dict.fromkeys(DIMENSIONS, 0.25),
    criterions={
        name: (RaceCriterion(criterion="A", weight=0.75), RaceCriterion(criterion="B", weight=0.25))
        for name in DIMENSIONS
    },
)


def entry(criterion: str, target: JsonValue, reference: JsonValue) -> dict[str, JsonValue]:
    return {"criterion": criterion, "article_1_score": target, "article_2_score": reference}


def reply(*entries: dict[str, JsonValue]) -> dict[str, JsonValue]:
    rest: JsonValue = [entry("A", 5, 5), entry("B", 5, 5)]
    return {name: rest for name in DIMENSIONS} | {"insight": list(entries)}


def insight(*entries: dict[str, JsonValue]) -> tuple[float, float]:
    score = score_task(reply(*entries), CRITERIA)
    return score.target[0]["insight"], score.reference[0]["insight"]


def test_a_dimension_averages_by_weight_and_the_overall_is_a_ratio_of_totals() -> None:
    # Insight: target 8*.75 + 4*.25 = 7, reference 4*.75 + 8*.25 = 5; the others 5 to 5.
    score = score_task(reply(entry("A", 8, 4), entry("B", 4, 8)), CRITERIA)

    # Totals (7+15)/4 = 5.5 and (5+15)/4 = 5, so 5.5/10.5, while insight alone is 7/12.
    assert score.overall == pytest.approx(5.5 / 10.5)
    assert score.dimensions["insight"] == pytest.approx(7 / 12)


def test_skipped_criteria_renormalise_the_weights() -> None:
    assert insight(entry("B", 4, 8)) == (4, 8)


def test_a_missing_reference_score_counts_zero_in_the_middle_and_voids_the_dimension_at_the_end() -> None:
    # Middle: reference 8*.25 over all weights. End: the official code reads the last item alone.
    assert insight(entry("A", 4, None), entry("B", 4, 8)) == (4, 2)
    assert insight(entry("B", 4, 8), entry("A", 4, None)) == (4, 0)


def test_numeric_strings_are_scores_and_words_or_a_missing_target_skip_the_criterion() -> None:
    assert insight(entry("A", "8", "4"), entry("B", "good", 1), entry("B", None, 2)) == (8, 4)


def test_a_single_target_score_is_taken_where_there_is_no_article_score() -> None:
    assert insight({"criterion": "A", "target_score": 6, "article_2_score": 3}) == (6, 3)


def test_scores_are_not_clamped_and_nothing_over_nothing_is_zero() -> None:
    assert insight(entry("A", 42, -3)) == (42, -3)
    assert score_task({name: [] for name in DIMENSIONS}, CRITERIA).overall == 0


def test_a_criterion_matches_exactly_then_without_case_then_as_a_part_then_takes_the_mean() -> None:
    known = {"Depth of facts": 0.5, "Depth": 0.3, "Reach": 0.1}

    assert weight_of("Depth", known) == 0.3
    assert weight_of("dePTH", known) == 0.3
    assert weight_of("depth o", known) == 0.5
    assert weight_of("tone", known) == pytest.approx(0.3)


def test_a_dimension_without_weight_is_passed_over_and_reads_zero() -> None:
    criteria = CRITERIA.model_copy(update={"dimension_weight": {"insight": 1.0}})

    score = score_task(reply(entry("A", 6, 2)), criteria)

    assert (score.overall, score.dimensions["readability"]) == (0.75, 0)


@pytest.mark.parametrize("wrap", ["{}", "```json\n{}\n```", "Scores: {} as {{asked}}", "<o>{}</o> }}", "```json\n{}"])
def test_a_reply_is_rescued_from_what_surrounds_it(wrap: str) -> None:
    scores = reply(entry("A", 1, 2))

    assert parse_scores(wrap.format(json.dumps(scores))) == scores


def test_broken_json_is_gathered_by_pattern_section_by_section() -> None:
    text = json.dumps(reply(entry("A", 1.5, 2))).replace('"criterion": "A"', '"criterion": "A", "why": "a "b""')

    found = rescue_json(text)

    assert isinstance(found, dict)
    assert found["insight"] == [entry("A", 1.5, 2.0)]


@pytest.mark.parametrize("text", ["null", "[]", "prose", "", '{"insight": []}'])
def test_a_reply_without_all_dimensions_is_asked_again(text: str) -> None:
    assert isinstance(parse_scores(text), Unparsed)


def test_after_the_last_try_the_task_carries_an_error_and_is_no_zero() -> None:
    outcome, calls = judge_task(["prose"], CRITERIA, max_tries=10)

    assert (outcome, calls) == ("Failed to get valid response after 10 retries", 10)


def test_a_task_without_criteria_carries_an_error() -> None:
    outcome, _ = judge_task([json.dumps(reply())], TaskCriteria(id=3))

    assert isinstance(outcome, str)


def test_rows_with_an_error_leave_the_mean() -> None:
    rows: list[dict[str, JsonValue]] = [{"overall_score": 0.5}, {"id": 2, "error": "x"}]

    means, num_scored = aggregate(rows)

    assert (num_scored, means and means["overall_score"]) == (1, 0.5)


def test_the_result_text_has_four_decimals() -> None:
    means, _ = aggregate([dict.fromkeys((*DIMENSIONS, "overall_score"), 0.125)])

    assert means is not None
    assert result_text(means).splitlines()[2] == "Instruction Following: 0.1250"
    assert aggregate([{"error": "x"}]) == (None, 0)


def test_entries_that_are_no_objects_leave_no_trace() -> None:
    scores = reply(entry("A", 8, 4)) | {"insight": [3, entry("A", 8, 4), entry("A", [1], 2), None]}

    assert score_task(scores, CRITERIA).target[0]["insight"] == 8


def test_a_reply_that_names_all_dimensions_without_being_an_object_carries_an_error() -> None:
    outcome, calls = judge_task([json.dumps(DIMENSIONS)], CRITERIA)

    assert outcome == "Error calculating scores: 'list' object has no attribute 'items'"
    assert calls == 1


def test_a_score_too_large_for_a_float_carries_an_error() -> None:
    outcome, _ = judge_task([json.dumps(reply(entry("A", 10**400, 1)))], CRITERIA)

    assert isinstance(outcome, str)
