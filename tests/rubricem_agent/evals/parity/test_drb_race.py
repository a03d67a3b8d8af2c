import json

import pytest
from pydantic import JsonValue

from rubricem_agent.evals.benchmarks.drb_data import DIMENSIONS, RaceCriterion, TaskCriteria
from rubricem_agent.evals.parity.drb_race import recorded_task
from rubricem_agent.evals.parity.replay import RecordedCase, replay_case

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


def test_a_task_without_criteria_carries_an_error() -> None:
    outcome = recorded_task(TaskCriteria(id=3), (json.dumps(reply()),))

    assert outcome["result"].keys() == {"id", "error"}


def test_a_reply_that_names_all_dimensions_without_being_an_object_carries_an_error() -> None:
    outcome = recorded_task(CRITERIA, (json.dumps(DIMENSIONS),))

    assert outcome["result"]["error"] == "Error calculating scores: 'list' object has no attribute 'items'"
    assert outcome["judge_calls"] == 1


def test_a_score_too_large_for_a_float_carries_an_error() -> None:
    outcome = recorded_task(CRITERIA, (json.dumps(reply(entry("A", 10**400, 1))),))

    assert outcome["result"].keys() == {"id", "error"}


def recorded(expected: dict[str, JsonValue], *, criteria: dict[str, JsonValue], reply: str) -> list[str]:
    given = {"criteria": criteria, "judge_replies": [reply]}
    return replay_case(RecordedCase(id="x", benchmark="drb_race", unit="task", input=given, expected=expected))


@pytest.mark.parametrize("criterions", [{}, None])
def test_a_task_without_criteria_agrees_with_the_row_and_with_what_the_official_arithmetic_raises(criterions) -> None:
    criteria = {"id": 3, "dimension_weight": {}, "criterions": criterions}
    missing = "ID: 3 - Missing required criterions data, cannot calculate weighted scores"
    row = {"result": {"id": 3, "error": f"Error calculating scores: {missing}"}, "weighted": None, "judge_calls": 1}
    for expected in (row, {"error": "ValueError"}):
        assert recorded(expected, criteria=criteria, reply=json.dumps(reply())) == []
    assert recorded({"error": "KeyError"}, criteria=criteria, reply=json.dumps(reply())) != []


def test_dimensions_that_hold_nested_objects_score_zero() -> None:
    nested = json.dumps({name: {"criteria": {"A": {"article_1_score": 9}}} for name in DIMENSIONS})
    empty = {"dims": {}, "total": 0.0}
    zeros = {"result": {"id": 1, **dict.fromkeys(DIMENSIONS, 0), "overall_score": 0}, "judge_calls": 1}
    zeros |= {"weighted": {"target": empty, "reference": empty}}
    criteria = CRITERIA.model_dump(mode="json")
    # Of two objects in one text the official parse takes the first whose braces balance.
    for text in (nested, f"So: {nested}", f"So: {nested} and {json.dumps(reply())}"):
        assert recorded(zeros, criteria=criteria, reply=text) == []


def test_braces_too_deep_and_numbers_too_long_for_python_end_the_official_search() -> None:
    failed = {"result": {"id": 1, "error": "Failed to get valid response after 10 retries"}, "judge_calls": 10}
    good = json.dumps(reply(entry("A", 7, 6)))
    deep = '{"a":' * 5_000 + "1" + "}" * 5_000
    for text in (deep + good, good.replace("7", "9" * 5_000)):
        assert recorded(failed, criteria=CRITERIA.model_dump(mode="json"), reply=text) == []
