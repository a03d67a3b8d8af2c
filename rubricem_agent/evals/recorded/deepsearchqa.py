"""Recorded DeepSearchQA cases."""

from rubricem_agent.evals import deepsearchqa, deepsearchqa_aggregate
from rubricem_agent.evals.errors import ScoringError
from rubricem_agent.evals.official_intervals import wald_text
from rubricem_agent.evals.recorded.unit import CaseInput, RecordedInput, Unit
from rubricem_env.domain.base import Text


class ItemInput(RecordedInput):
    response: Text | None
    judge_text: Text | None

    def rate(self) -> deepsearchqa.Rating | deepsearchqa.Exclusion:
        return deepsearchqa.rate(self.response or "", self.judge_text or "")


class AggregateInput(RecordedInput):
    items: tuple[ItemInput, ...]


class IntervalInput(RecordedInput):
    count: int
    total: int


def score_item(case_input: CaseInput) -> object:
    rating = ItemInput.read(case_input).rate()
    if isinstance(rating, deepsearchqa.Exclusion):
        return {"status": rating.value}
    return {
        "status": "valid",
        "precision": rating.precision,
        "recall": rating.recall,
        "f1_score": rating.f1,
        "fully_correct": int(rating.is_fully_correct),
        "fully_incorrect": int(rating.is_fully_incorrect),
        "correct_with_excessive": int(rating.is_correct_with_excessive),
        "expected_items": rating.expected,
        "found": rating.found,
        "excessive": rating.excessive,
    }


def aggregate(case_input: CaseInput) -> object:
    outcomes = [_outcome(item) for item in AggregateInput.read(case_input).items]
    macro = deepsearchqa_aggregate.macro_scores(outcomes)
    unrounded = dict.fromkeys(deepsearchqa_aggregate.MacroScores._fields) if macro is None else macro._asdict()
    return {"official": deepsearchqa_aggregate.official_summary(outcomes), "macro_unrounded": unrounded}


def interval(case_input: CaseInput) -> object:
    case = IntervalInput.read(case_input)
    return {"text": wald_text(case.count, case.total)}


def _outcome(item: ItemInput) -> deepsearchqa_aggregate.Outcome:
    try:
        return item.rate()
    except ScoringError:
        return None


UNITS = {"item": Unit(score_item), "aggregate": Unit(aggregate), "ci": Unit(interval)}
