"""ResearchQA: how far an answer covers each rubric item, on five levels, averaged to a coverage between 0 and 1.

Items go to the judge in batches (8 officially, 10 for DR Tulu) and come back as one phrase per line. A batch with the
wrong number of lines is asked three times; then its question leaves the mean and does not count as zero. The file is a
JSON array of questions with rubric items.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from pydantic import BeforeValidator, Field

from rubricem_agent.evals.benchmark import OR_FROM_MEMORY, Benchmark
from rubricem_agent.evals.dataset import Gold
from rubricem_agent.evals.files import json_array, rows_loader
from rubricem_agent.evals.grading import Asking, Case, Grade, Grader, numbered
from rubricem_agent.evals.reply_parsing import Unparsed
from rubricem_agent.evals.rules import drtulu_rules, official_rules, paper_rules
from rubricem_agent.evals.scoring_error import ScoringError
from rubricem_env.domain.base import Text
from rubricem_env.domain.trajectory import AnswerFormat

LEVELS = {"Not at all": 1, "Barely": 2, "Moderately": 3, "Mostly": 4, "Completely": 5}
OFFICIAL_BATCH = 8
DRTULU_BATCH = 10


_ItemText = Annotated[Text, BeforeValidator(lambda item: item.get("rubric_item") if isinstance(item, dict) else item)]
"""The file has an object with the text around each item."""


class ResearchQAGold(Gold):
    """A row of the file: the question, its rubric items in file order, and its field of research."""

    id: Text = Field(min_length=1)
    query: Text = Field(min_length=1)
    rubric: tuple[_ItemText, ...]
    general_domain: Text = ""


load = rows_loader("researchqa", json_array, ResearchQAGold, prompt=lambda row: row.query, num_rows=3750)


def level_of(label: str) -> int:
    """The level of a label, 1 to 5. Case counts.

    Another label raises ScoringError("KeyError"), which officially ends the run.
    """
    if label not in LEVELS:
        raise ScoringError("KeyError", f"the judge's label {label!r} is not one of {', '.join(LEVELS)}")
    return LEVELS[label]


def coverage_of(labels: Sequence[str]) -> float:
    """The mean normalised level over the items of one question. Labels are looked up before the division."""
    levels = [level_of(label) for label in labels]
    if not levels:
        raise ScoringError("ZeroDivisionError", "the question has no rubric item")
    return sum((level - 1) / 4 for level in levels) / len(levels)


def read_batch(reply: str, *, size: int) -> list[str] | Unparsed:
    """As `parse_batch`, but every line is one of the five phrases."""
    lines = parse_batch(reply, size=size)
    if isinstance(lines, Unparsed) or LEVELS.keys() >= set(lines):
        return lines
    return Unparsed(f"a line is not one of {', '.join(LEVELS)}")


def parse_batch(reply: str, *, size: int) -> list[str] | Unparsed:
    """The official parse: the lines of a reply, stripped, blanks dropped, exactly one per item."""
    # Only a newline separates, as in the official split: a form feed inside a line does not make two.
    lines = [line.strip() for line in reply.split("\n") if line.strip()]
    return lines if len(lines) == size else Unparsed(f"{len(lines)} lines for {size} items")


def grade(case: Case, grader: Grader) -> Asking[Grade]:
    """One round: every batch. A question whose batch cannot be read leaves the mean; strictly it counts 0."""
    gold = case.gold_as(ResearchQAGold)
    rules = grader.rules
    batches = [gold.rubric[start : start + rules.batch_size] for start in range(0, len(gold.rubric), rules.batch_size)]
    parsed = yield tuple(
        grader.question(
            f"batch-{number}",
            "researchqa",
            parse=partial(read_batch, size=len(batch)),
            official_parse=partial(parse_batch, size=len(batch)),
            official={"items": "\n".join(batch)},
            answer=case.answer.text,
            items=numbered(batch),
            count=str(len(batch)),
        )
        for number, batch in enumerate(batches)
    )
    labels: list[str] = []
    for batch, lines in zip(batches, parsed, strict=True):
        labels += [""] * len(batch) if isinstance(lines, Unparsed) else lines
    readable = {f"item-{number}": label for number, label in enumerate(labels) if label in LEVELS}
    try:
        if "" in labels:
            raise ScoringError("dropped", f"a batch got no verdict in {rules.tries} tries")
        coverage = coverage_of(labels)
    except ScoringError as refusal:
        return grader.excluded(refusal.reason)._replace(labels=readable)
    by_domain = {f"domain:{gold.general_domain}": coverage} if gold.general_domain else {}
    return Grade(coverage, coverage, metrics=by_domain, labels=readable)


OFFICIAL = official_rules("gpt-4.1-mini-2025-04-14", batch_size=OFFICIAL_BATCH, citations="numbered")
DRTULU = drtulu_rules(OFFICIAL, batch_size=DRTULU_BATCH)
BENCHMARK = Benchmark(
    name="researchqa",
    title="ResearchQA",
    answer_format=AnswerFormat.SHORT,
    load=load,
    grader=lambda rules: Grader(rules, grade, "coverage", prompts=("researchqa",)),
    official=OFFICIAL,
    drtulu=DRTULU,
    paper=paper_rules(DRTULU, size=756),
    is_long=True,
    searches=OR_FROM_MEMORY,
    hub="hf:realliyifei/ResearchQA/test.json@87cdd81df0c5ea96de293859233e8e64dac3d168",
    guidance="Answer in about 250 words, with citations.",
    ids="id of the data file",
    drtulu_ids="hf:rl-research/researchqa_official_subset_ids/researchqa_official_subset_ids.json",
)
