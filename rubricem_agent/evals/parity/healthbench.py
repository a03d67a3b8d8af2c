"""Recorded verdicts of HealthBench: one example with its replies, and the means over all examples.

The variants are DR Tulu's means and inspect_evals 0.26, which is kept to read published numbers. inspect_evals asks
three times; then the item counts as not met, which helps a model on a negative item. It reads unlabelled fences, and an
example without a rubric or without positive points scores 0.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pydantic import JsonValue

from rubricem_agent.evals.benchmarks import healthbench
from rubricem_agent.evals.benchmarks.healthbench import RubricItem
from rubricem_agent.evals.parity.recorded_judge import CountedScoringError, RecordedJudge, judges_of
from rubricem_agent.evals.parity.unit import Unit
from rubricem_agent.evals.reply_parsing import parse_json
from rubricem_env.domain.base import Text


class ItemVerdict(NamedTuple):
    """The verdict on one rubric item, and the number of replies that it took."""

    is_met: bool
    judge_calls: int


def grade_item(replies: Sequence[str]) -> ItemVerdict:
    """The first readable verdict. The official loop has no limit but the recording."""
    for number, reply in enumerate(replies, start=1):
        is_met = healthbench.parse_verdict(reply)
        if isinstance(is_met, bool):
            return ItemVerdict(is_met, number)
    raise CountedScoringError(
        healthbench.NEVER_PARSABLE, f"none of {len(replies)} judge replies holds a verdict", judge_calls=len(replies)
    )


def inspect_met(judge: RecordedJudge) -> JsonValue:
    """The verdict as it is counted: a boolean, or after three tries whatever the last reply has under criteria_met."""
    last: dict[str, JsonValue] = {}
    while judge.calls < 3:
        reply = judge.ask()
        if reply is None:
            last = {"criteria_met": False} if judge.calls == 3 else last
            continue
        text = reply.strip()
        text = text.removeprefix("```json") if text.startswith("```json") else text.removeprefix("```")
        parsed = parse_json(text.removesuffix("```").strip())
        last = parsed if isinstance(parsed, dict) else {}
        if isinstance(last.get("criteria_met"), bool):
            break
    return last.get("criteria_met", False)


def recorded_example(
    rubrics: tuple[RubricItem, ...], example_tags: tuple[Text, ...], judge_replies: tuple[tuple[Text, ...], ...]
) -> object:
    judges_of(judge_replies, rubrics)
    # The official code refuses an example without items before it judges any.
    verdicts = [grade_item(replies) for replies in judge_replies]
    calls = [verdict.judge_calls for verdict in verdicts]
    met = [verdict.is_met for verdict in verdicts]
    return {
        "metrics": healthbench.score_example(rubrics, example_tags, met=met),
        "criteria_met": met,
        "judge_calls_per_item": calls,
        "total_judge_calls": sum(calls),
    }


def recorded_inspect_example(rubrics: tuple[RubricItem, ...], judge_replies: tuple[tuple[Text, ...], ...]) -> object:
    """A verdict counts where it is truthy; without positive points the score is 0."""
    met = [inspect_met(judge) for judge in judges_of(judge_replies, rubrics)]
    share = healthbench.points_share((item, bool(value)) for item, value in zip(rubrics, met, strict=True))
    return {"met": met, "healthbench_score": share or 0.0}


def recorded_aggregate(
    per_example_metrics: tuple[dict[str, float], ...],
    numpy_global_seed: int,
    bootstrap_draws: int = healthbench.BOOTSTRAP_DRAWS,
) -> object:
    rng = np.random.RandomState(numpy_global_seed)
    return _with_score(healthbench.official_aggregate(per_example_metrics, rng=rng, draws=bootstrap_draws))


def recorded_drtulu_aggregate(per_example_metrics: tuple[dict[str, float], ...]) -> object:
    return _with_score(healthbench.drtulu_aggregate(per_example_metrics))


def _with_score(metrics: dict[str, float]) -> dict[str, object]:
    return {"score": metrics.pop("score", None), "metrics": metrics}


def recorded_inspect_aggregate(
    per_example_metrics: tuple[dict[str, float], ...],
    numpy_global_seed: int,
    bootstrap_draws: int = healthbench.BOOTSTRAP_DRAWS,
) -> object:
    """Clipped mean of the overall scores and its bootstrap error; both 0 where there is none."""
    values = healthbench.values_by_name(per_example_metrics).get("overall_score")
    if values is None:
        return {"score": 0.0, "bootstrap_std_error": 0.0}
    picks = np.random.default_rng(numpy_global_seed).integers(0, len(values), size=(bootstrap_draws, len(values)))
    return {"score": healthbench.clipped_mean(values), "bootstrap_std_error": healthbench.clipped_spread(values[picks])}


UNITS = {
    "example": Unit(recorded_example, {"inspect_evals_0.26.0": recorded_inspect_example}),
    "aggregate": Unit(
        recorded_aggregate,
        {
            "dr_tulu_aggregate_results_unclipped": recorded_drtulu_aggregate,
            "inspect_evals_calculate_final_score_default_rng(seed)": recorded_inspect_aggregate,
        },
    ),
}
