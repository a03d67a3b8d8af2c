"""Recorded verdicts of DeepResearchBench RACE: the result of one task, and the means over all tasks."""

from pydantic import JsonValue

from rubricem_agent.evals.benchmarks.drb_data import DIMENSIONS, TaskCriteria
from rubricem_agent.evals.benchmarks.drb_race import NoTaskScore, score_or_reason
from rubricem_agent.evals.benchmarks.drb_reply import parse_scores
from rubricem_agent.evals.parity.recorded_judge import RecordedJudge
from rubricem_agent.evals.parity.unit import Unit
from rubricem_env.domain.base import Text

MAX_TRIES = 10


def recorded_task(criteria: TaskCriteria, judge_replies: tuple[Text, ...], max_retries: int = MAX_TRIES) -> object:
    judge = RecordedJudge(judge_replies)
    outcome = score_or_reason(judge.first_parsed(parse_scores, tries=max_retries), criteria, tries=max_retries)
    row: dict[str, object] = {"id": criteria.id}
    if isinstance(outcome, NoTaskScore):
        # A recording has the row of the official driver, or what its arithmetic raises.
        raised = {"error": outcome.raised} if outcome.raised else {}
        return {"result": row | {"error": outcome.reason}, "weighted": None, "judge_calls": judge.calls, **raised}
    weighted = {
        name: {
            "dims": {f"{dimension}_weighted_avg": average for dimension, average in report.averages.items()},
            "total": report.total,
        }
        for name, report in (("target", outcome.target), ("reference", outcome.reference))
    }
    result = row | outcome.dimensions | {"overall_score": outcome.overall}
    return {"result": result, "weighted": weighted, "judge_calls": judge.calls}


def recorded_aggregate(rows: tuple[dict[str, JsonValue], ...]) -> object:
    """Means over the scored rows. Rows with an `error` leave them; a column that a scored row lacks counts 0 there."""
    scored = [row for row in rows if "error" not in row]
    if not scored:
        # The official file is not written where nothing was scored.
        return {"means": None, "n_scored": 0, "race_result_txt": None}
    columns = {name: [row.get(name, 0) for row in scored] for name in (*DIMENSIONS, "overall_score")}
    means = {
        name: sum(float(value) if isinstance(value, int | float) else 0.0 for value in values) / len(scored)
        for name, values in columns.items()
    }
    text = "".join(f"{name.replace('_', ' ').title()}: {mean:.4f}\n" for name, mean in means.items())
    return {"means": means, "n_scored": len(scored), "race_result_txt": text}


UNITS = {"task": Unit(recorded_task), "aggregate": Unit(recorded_aggregate)}
