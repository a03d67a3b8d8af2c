"""Recorded verdicts of ResearchRubrics: one task with its replies, the older labels, and the mean over samples."""

from pydantic import Field

from rubricem_agent.evals.benchmarks.researchrubrics import compliance, parse_verdict
from rubricem_agent.evals.files import FileRow
from rubricem_agent.evals.grading import mean_of
from rubricem_agent.evals.parity.recorded_judge import judges_of
from rubricem_agent.evals.parity.unit import Unit
from rubricem_agent.evals.reply_parsing import Unparsed
from rubricem_env.domain.base import Text
from rubricem_env.domain.errors import FileFormatError

MAX_TRIES = 3


TERNARY = {"Satisfied": 1.0, "Partially Satisfied": 0.5, "Not Satisfied": 0.0}


BINARY = {"Satisfied": 1.0}
"""The binary reading of the older labels: a partial is not satisfied. Unknown labels count 0 in both."""


class RecordedItem(FileRow):
    """A rubric item of a recorded case, with its score where it was judged."""

    weight: float = Field(allow_inf_nan=True)
    score: float | None = Field(default=None, allow_inf_nan=True)


def recorded_task(rubrics: tuple[RecordedItem, ...], judge_replies: tuple[tuple[Text, ...], ...]) -> object:
    """Three tries for each item, then its verdict is Error.

    Officially such an item stays in the sum with score 0: on a negative item that helps the model.
    """
    judges = judges_of(judge_replies, rubrics)
    verdicts = [judge.first_parsed(parse_verdict, tries=MAX_TRIES) for judge in judges]
    scores = [None if isinstance(verdict, Unparsed) else verdict.score for verdict in verdicts]
    return {
        "verdicts": ["Error" if isinstance(verdict, Unparsed) else verdict.verdict for verdict in verdicts],
        "scores": [score or 0.0 for score in scores],
        "success": [score is not None for score in scores],
        "compliance_score": compliance(scores, [rubric.weight for rubric in rubrics]),
        "judge_calls_per_item": [judge.calls for judge in judges],
    }


def recorded_labels(weights: tuple[float, ...], presence: tuple[Text, ...]) -> object:
    scales = {"ternary": TERNARY, "binary": BINARY}
    return {
        name: compliance([scores.get(label, 0.0) for label in presence], weights) for name, scores in scales.items()
    }


def recorded_aggregate(samples: tuple[tuple[RecordedItem, ...], ...]) -> object:
    """The unweighted mean over samples; 0 for none. An empty report writes no rows and is officially no sample."""
    if any(row.score is None for rows in samples for row in rows):
        raise FileFormatError("samples: a row has no score")
    scores = [compliance([row.score for row in rows], [row.weight for row in rows]) for rows in samples if rows]
    average = mean_of(scores) or 0.0
    return {
        "total_samples": len(scores),
        "average_printed_4dp": f"{average:.4f}",
        "average_unrounded_same_formula": average,
    }


UNITS = {
    "task_binary": Unit(recorded_task),
    "ternary_vs_binary": Unit(recorded_labels),
    "aggregate": Unit(recorded_aggregate),
}
