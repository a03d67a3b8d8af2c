import json

import pytest

from rubricem_agent.evals.base import API_ERROR, Unparsed
from rubricem_agent.evals.benchmarks.researchrubrics import (
    BINARY,
    TERNARY,
    ItemResult,
    compliance,
    grade_item,
    labelled_score,
    macro_mean,
    parse_verdict,
    strict_compliance,
)


def reply(score: object = 1.0, **fields: object) -> str:
    return json.dumps({"verdict": "Satisfied", "score": score, "confidence": 0.9} | fields)


def test_the_score_counts_and_the_verdict_does_not() -> None:
    verdict = parse_verdict(reply(0.5))

    assert verdict == ("Satisfied", 0.5)


@pytest.mark.parametrize(
    "text", [f"```json\n{reply()}\n```", reply("high"), reply(None), reply(confidence=None), "[]", "5"]
)
def test_a_fence_or_anything_that_is_no_number_is_asked_again(text: str) -> None:
    assert isinstance(parse_verdict(text), Unparsed)


def test_a_numeric_string_is_a_score() -> None:
    assert parse_verdict(reply("0.25")) == ("Satisfied", 0.25)


def test_three_failures_make_an_error_with_score_zero_that_stays_in_the_sum() -> None:
    assert grade_item([API_ERROR]) == ("Error", 0.0, False, 3)
    assert grade_item(["x", API_ERROR, reply()]) == ("Satisfied", 1.0, True, 3)


def test_a_negative_item_subtracts_only_when_it_is_satisfied_and_nothing_is_clipped() -> None:
    # Positive weights 2. (2*0 - 3*1) / 2 = -1.5.
    assert compliance([0, 1], [2, -3]) == -1.5
    assert compliance([1, 0], [2, -3]) == 1.0
    assert compliance([1], [-3]) == 0.0


def test_strict_mode_counts_a_failed_negative_item_as_satisfied() -> None:
    # (2*1 - 1*1) / 2 = 0.5, where the official score is 1.
    items = [grade_item([reply()]), grade_item(["?"])]

    assert strict_compliance(items, [2, -1]) == 0.5


def test_a_partial_is_half_in_the_ternary_reading_and_nothing_in_the_binary_one() -> None:
    # Ternary (4*0.5 + 4*1)/8 = 0.75; binary 4/8; the unknown label counts 0 in both.
    labels, weights = ["Partially Satisfied", "Satisfied", "Unsure"], [4, 4, 0]

    assert labelled_score(labels, weights, values=TERNARY) == 0.75
    assert labelled_score(labels, weights, values=BINARY) == 0.5


def test_the_mean_is_over_samples_and_an_empty_report_is_no_sample() -> None:
    # 1 and 0 make 0.5, however many items each has.
    samples = [[ItemResult(1, 1)], [], [ItemResult(0, 1), ItemResult(0, 1)]]

    assert macro_mean(samples) == (2, 0.5)
    assert macro_mean([]) == (0, 0.0)
