import json

from pydantic import JsonValue

from rubricem_agent.evals.benchmarks.drb_data import DIMENSIONS, RaceCriterion, TaskCriteria
from rubricem_agent.evals.parity.drb_race import recorded_task

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
