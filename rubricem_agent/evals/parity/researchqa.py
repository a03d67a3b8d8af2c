"""Recorded verdicts of ResearchQA: one level, the coverage of one question, and a whole run."""

from functools import partial

from pydantic import JsonValue

from rubricem_agent.evals.benchmarks.researchqa import OFFICIAL_BATCH, coverage_of, level_of, parse_batch
from rubricem_agent.evals.files import FileRow
from rubricem_agent.evals.grading import mean_of
from rubricem_agent.evals.parity.recorded_judge import CountedScoringError, RecordedJudge
from rubricem_agent.evals.parity.unit import Unit
from rubricem_agent.evals.reply_parsing import Unparsed
from rubricem_agent.evals.scoring_error import ScoringError
from rubricem_env.domain.base import Text
from rubricem_env.domain.errors import FileFormatError

MAX_TRIES = 3


class RecordedRubric(FileRow):
    """A question of a recorded run, its rubric items in file order."""

    id: Text
    rubric: tuple[Text, ...]


def recorded_level(label: Text) -> object:
    level = level_of(label)
    return {"number": level, "normalized": (level - 1) / 4}


def recorded_item(labels: tuple[Text, ...]) -> object:
    return {"coverage": coverage_of(labels)}


def recorded_run(
    items: tuple[RecordedRubric, ...],
    answers: dict[str, JsonValue],
    judge_replies_by_item_and_batch: dict[str, tuple[Text, ...]],
    batch_size: int = OFFICIAL_BATCH,
) -> object:
    """The questions that survive the official run. One without an answer is skipped; an empty answer is judged."""
    malformed = [key for key in judge_replies_by_item_and_batch if not key.rpartition(":")[2].isdecimal()]
    if malformed:
        raise FileFormatError(f"replies are recorded under {malformed[0]!r}, which is not of the form id:number")
    if batch_size < 1:
        raise FileFormatError(f"batch_size is {batch_size}; a batch has at least 1 item")
    coverages: list[tuple[str, float]] = []
    calls = 0
    for question in items:
        if question.id not in answers:
            continue
        labels: list[str] = []
        for number, start in enumerate(range(0, len(question.rubric), batch_size)):
            judge = RecordedJudge(judge_replies_by_item_and_batch.get(f"{question.id}:{number}", ()))
            parse = partial(parse_batch, size=len(question.rubric[start : start + batch_size]))
            # Only a wrong number of lines is asked again; a failed request drops the question at once.
            batch = judge.first_parsed(parse, tries=MAX_TRIES, ends_at_failure=True)
            calls += judge.calls
            if isinstance(batch, Unparsed):
                break
            labels.extend(batch)
        else:
            try:
                coverages.append((question.id, coverage_of(labels)))
            except ScoringError as error:
                raise CountedScoringError(error.official, error.reason, judge_calls=calls) from error
    return {
        "scored_item_ids": [item_id for item_id, _ in coverages],
        "coverages": dict(coverages),
        "average": mean_of([coverage for _, coverage in coverages]),
        "judge_calls": calls,
    }


UNITS = {"level": Unit(recorded_level), "item": Unit(recorded_item), "run": Unit(recorded_run)}
