"""Recorded ResearchQA cases."""

from typing import Self

from pydantic import Field, JsonValue, model_validator

from rubricem_agent.evals import researchqa
from rubricem_agent.evals.recorded.unit import CaseInput, RecordedInput, Unit
from rubricem_env.domain.base import Text


class LevelInput(RecordedInput):
    label: Text


class ItemInput(RecordedInput):
    labels: tuple[Text, ...]


class RunInput(RecordedInput):
    items: tuple[researchqa.Question, ...]
    answers: dict[str, JsonValue]
    batch_size: int = Field(default=researchqa.OFFICIAL_BATCH, ge=1)
    judge_replies_by_item_and_batch: dict[str, tuple[Text, ...]]

    @model_validator(mode="after")
    def _keys_name_a_batch(self) -> Self:
        for key in self.judge_replies_by_item_and_batch:
            if not key.rpartition(":")[2].isdecimal():
                raise ValueError(f"replies are recorded under {key!r}, which is not of the form id:number")
        return self

    def replies(self) -> dict[tuple[str, int], tuple[str, ...]]:
        """The recorded replies by question id and batch number."""
        split = {key: key.rpartition(":") for key in self.judge_replies_by_item_and_batch}
        return {
            (split[key][0], int(split[key][2])): replies
            for key, replies in self.judge_replies_by_item_and_batch.items()
        }


def score_level(case_input: CaseInput) -> object:
    level = researchqa.level_of(LevelInput.read(case_input).label)
    return {"number": level, "normalized": researchqa.normalized(level)}


def score_item(case_input: CaseInput) -> object:
    return {"coverage": researchqa.coverage_of(ItemInput.read(case_input).labels)}


def score_run(case_input: CaseInput) -> object:
    case = RunInput.read(case_input)
    score = researchqa.score_run(case.items, case.answers, replies=case.replies(), batch_size=case.batch_size)
    return {
        "scored_item_ids": [item_id for item_id, _ in score.coverages],
        "coverages": dict(score.coverages),
        "average": score.average,
        "judge_calls": score.judge_calls,
    }


UNITS = {"level": Unit(score_level), "item": Unit(score_item), "run": Unit(score_run)}
