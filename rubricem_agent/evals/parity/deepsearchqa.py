"""Recorded verdicts of DeepSearchQA: one rating, the project rating, and one interval."""

from pydantic import JsonValue

from rubricem_agent.evals.benchmarks.deepsearchqa import (
    MACRO,
    Outcome,
    Rating,
    macro_scores,
    official_summary,
    rate,
    wald_text,
)
from rubricem_agent.evals.parity.unit import Unit
from rubricem_agent.evals.scoring_error import ScoringError
from rubricem_env.domain.base import Text


def recorded_item(response: Text | None, judge_text: Text | None) -> object:
    rating = rate(response or "", judge_text or "")
    if not isinstance(rating, Rating):
        return {"status": rating}
    items = {"expected_items": rating.expected, "found": rating.found, "excessive": rating.excessive}
    return {"status": "valid", **rating.measures, **items}


def recorded_aggregate(items: tuple[dict[str, JsonValue], ...]) -> object:
    outcomes: list[Outcome] = []
    for item in items:
        try:
            outcomes.append(rate(str(item.get("response") or ""), str(item.get("judge_text") or "")))
        except ScoringError:
            outcomes.append(None)
    unrounded = macro_scores(outcomes) or dict.fromkeys(MACRO)
    return {"official": official_summary(outcomes), "macro_unrounded": unrounded}


def recorded_interval(count: int, total: int) -> object:
    return {"text": wald_text(count, total)}


UNITS = {"item": Unit(recorded_item), "aggregate": Unit(recorded_aggregate), "ci": Unit(recorded_interval)}
