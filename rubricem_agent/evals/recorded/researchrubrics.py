"""Recorded ResearchRubrics cases."""

from typing import Self

from pydantic import ConfigDict, model_validator

from rubricem_agent.evals import researchrubrics
from rubricem_agent.evals.recorded.unit import CaseInput, RecordedInput, Unit
from rubricem_env.domain.base import Frozen, Text


class WeightedItem(Frozen):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=True)

    weight: float


class ScoredItem(WeightedItem):
    score: float


class TaskInput(RecordedInput):
    rubrics: tuple[WeightedItem, ...]
    judge_replies: tuple[tuple[Text, ...], ...]

    @model_validator(mode="after")
    def _one_list_of_replies_per_item(self) -> Self:
        if len(self.judge_replies) != len(self.rubrics):
            raise ValueError(f"{len(self.judge_replies)} lists of replies for {len(self.rubrics)} rubric items")
        return self


class LabelInput(RecordedInput):
    weights: tuple[float, ...]
    presence: tuple[Text, ...]


class AggregateInput(RecordedInput):
    samples: tuple[tuple[ScoredItem, ...], ...]


def score_task(case_input: CaseInput) -> object:
    case = TaskInput.read(case_input)
    items = [researchrubrics.grade_item(replies) for replies in case.judge_replies]
    scores = [item.score for item in items]
    return {
        "verdicts": [item.verdict for item in items],
        "scores": scores,
        "success": [item.success for item in items],
        "compliance_score": researchrubrics.compliance(scores, [rubric.weight for rubric in case.rubrics]),
        "judge_calls_per_item": [item.judge_calls for item in items],
    }


def score_labels(case_input: CaseInput) -> object:
    case = LabelInput.read(case_input)
    return {
        "ternary": researchrubrics.labelled_score(case.presence, case.weights, values=researchrubrics.TERNARY),
        "binary": researchrubrics.labelled_score(case.presence, case.weights, values=researchrubrics.BINARY),
    }


def aggregate(case_input: CaseInput) -> object:
    samples = AggregateInput.read(case_input).samples
    rows = [[researchrubrics.ItemResult(item.score, item.weight) for item in sample] for sample in samples]
    total, average = researchrubrics.macro_mean(rows)
    return {
        "total_samples": total,
        "average_printed_4dp": f"{average:.4f}",
        "average_unrounded_same_formula": average,
    }


UNITS = {
    "task_binary": Unit(score_task),
    "ternary_vs_binary": Unit(score_labels),
    "aggregate": Unit(aggregate),
}
