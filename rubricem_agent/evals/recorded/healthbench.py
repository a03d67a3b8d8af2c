"""Recorded HealthBench cases."""

from typing import Self

import numpy as np
from pydantic import model_validator

from rubricem_agent.evals import healthbench, healthbench_aggregate, healthbench_inspect
from rubricem_agent.evals.recorded.unit import CaseInput, RecordedInput, Unit
from rubricem_env.domain.base import Text


class ExampleInput(RecordedInput):
    rubrics: tuple[healthbench.RubricItem, ...]
    example_tags: tuple[Text, ...]
    judge_replies: tuple[tuple[Text, ...], ...]

    @model_validator(mode="after")
    def _one_list_of_replies_per_item(self) -> Self:
        if len(self.judge_replies) != len(self.rubrics):
            raise ValueError(f"{len(self.judge_replies)} lists of replies for {len(self.rubrics)} rubric items")
        return self


class AggregateInput(RecordedInput):
    per_example_metrics: tuple[dict[str, float], ...]
    numpy_global_seed: int
    bootstrap_draws: int = healthbench_aggregate.BOOTSTRAP_DRAWS


def score_example(case_input: CaseInput) -> object:
    case = ExampleInput.read(case_input)
    score = healthbench.score_example(case.rubrics, case.example_tags, replies=case.judge_replies)
    return {
        "metrics": score.metrics,
        "criteria_met": [item.met for item in score.items],
        "judge_calls_per_item": [item.judge_calls for item in score.items],
        "total_judge_calls": score.judge_calls,
    }


def score_example_as_inspect(case_input: CaseInput) -> object:
    case = ExampleInput.read(case_input)
    met = [healthbench_inspect.inspect_met(replies) for replies in case.judge_replies]
    return {"met": met, "healthbench_score": healthbench_inspect.inspect_score(case.rubrics, met)}


def aggregate(case_input: CaseInput) -> object:
    case = AggregateInput.read(case_input)
    rng = np.random.RandomState(case.numpy_global_seed)
    examples = case.per_example_metrics
    return healthbench_aggregate.official_aggregate(examples, rng=rng, draws=case.bootstrap_draws)._asdict()


def aggregate_as_drtulu(case_input: CaseInput) -> object:
    return healthbench_aggregate.drtulu_aggregate(AggregateInput.read(case_input).per_example_metrics)._asdict()


def aggregate_as_inspect(case_input: CaseInput) -> object:
    case = AggregateInput.read(case_input)
    rng = np.random.default_rng(case.numpy_global_seed)
    examples = case.per_example_metrics
    return healthbench_aggregate.inspect_aggregate(examples, rng=rng, draws=case.bootstrap_draws)._asdict()


UNITS = {
    "example": Unit(score_example, {"inspect_evals_0.26.0": score_example_as_inspect}),
    "aggregate": Unit(
        aggregate,
        {
            "dr_tulu_aggregate_results_unclipped": aggregate_as_drtulu,
            "inspect_evals_calculate_final_score_default_rng(seed)": aggregate_as_inspect,
        },
    ),
}
