from pydantic import JsonValue

from rubricem_agent.evals.benchmarks.drb_data import DIMENSIONS, RaceCriterion, TaskCriteria
from rubricem_agent.evals.benchmarks.drb_race import score_task

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
    return score.target.averages["insight"], score.reference.averages["insight"]


def test_a_missing_reference_score_counts_zero_in_the_middle_and_voids_the_dimension_at_the_end() -> None:
    # Middle: reference 8*.25 over all weights. End: the official code reads the last item alone.
    assert insight(entry("A", 4, None), entry("B", 4, 8)) == (4, 2)
    assert insight(entry("B", 4, 8), entry("A", 4, None)) == (4, 0)


def test_entries_that_are_no_objects_leave_no_trace() -> None:
    scores = reply(entry("A", 8, 4)) | {"insight": [3, entry("A", 8, 4), entry("A", [1], 2), None]}

    assert score_task(scores, CRITERIA).target.averages["insight"] == 8
