"""Recorded RACE cases."""

from pydantic import JsonValue

from rubricem_agent.evals import drb_race, race_aggregate
from rubricem_agent.evals.recorded.unit import CaseInput, RecordedInput, Unit
from rubricem_env.domain.base import Text


class TaskInput(RecordedInput):
    criteria: drb_race.TaskCriteria
    judge_replies: tuple[Text, ...]
    max_retries: int = drb_race.MAX_TRIES


class AggregateInput(RecordedInput):
    rows: tuple[dict[str, JsonValue], ...]


def score_task(case_input: CaseInput) -> object:
    case = TaskInput.read(case_input)
    outcome, calls = drb_race.judge_task(case.judge_replies, case.criteria, max_tries=case.max_retries)
    row: dict[str, object] = {"id": case.criteria.id}
    if isinstance(outcome, drb_race.TaskFailure):
        return {"result": row | {"error": outcome.error}, "weighted": None, "judge_calls": calls}
    weighted = {name: _side(side) for name, side in outcome.weighted._asdict().items()}
    result = row | outcome.dimensions | {"overall_score": outcome.overall}
    return {"result": result, "weighted": weighted, "judge_calls": calls}


def aggregate(case_input: CaseInput) -> object:
    score = race_aggregate.aggregate(AggregateInput.read(case_input).rows)
    return {"means": score.means, "n_scored": score.n_scored, "race_result_txt": score.result_text()}


def _side(side: drb_race.Side) -> dict[str, object]:
    averages = {f"{dimension}_weighted_avg": average for dimension, average in side.dimensions.items()}
    return {"dims": averages, "total": side.total}


UNITS = {"task": Unit(score_task), "aggregate": Unit(aggregate)}
