"""DRACO: Perplexity's 100 research tasks, each with weighted criteria in sections; a negative weight marks an error.

One judge call per criterion says MET or UNMET. score = weights met / positive weights, clipped to 0..1 for each task;
the mean over tasks is the benchmark's number. The paper judges each answer five times, this file once. The scorer is
the package `rubric` of The LLM Data Company. Files are JSON Lines, with the rubric of a task as JSON text.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, Json

from rubricem_agent.evals.benchmark import Benchmark
from rubricem_agent.evals.dataset import Gold
from rubricem_agent.evals.files import FileRow, json_lines, rows_loader
from rubricem_agent.evals.grading import Asking, Case, Grade, Grader
from rubricem_agent.evals.reply_parsing import Unparsed, parse_json, read_form
from rubricem_agent.evals.rules import official_rules
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.trajectory import AnswerFormat


class DracoCriterion(FileRow):
    """One criterion; the judge sees whether it is positive or negative, never its weight."""

    requirement: Text
    weight: float


class DracoSection(FileRow):
    """The criteria of one axis, such as factual accuracy."""

    criteria: tuple[DracoCriterion, ...]


class DracoRubric(FileRow):
    """The rubric of a task."""

    sections: tuple[DracoSection, ...] = Field(min_length=1)


class DracoGold(Gold):
    """A row of the file with its rubric."""

    problem: Text = Field(min_length=1)
    rubric: Json[DracoRubric] = Field(validation_alias="answer")


load = rows_loader("draco", json_lines, DracoGold, prompt=lambda row: row.problem, num_rows=100)


class _Status(Frozen):
    criterion_status: Literal["MET", "UNMET"]
    explanation: str = ""


def read_status(reply: str) -> bool | Unparsed:
    """Whether the criterion is met, by a reply that is one JSON object of the form that was asked for."""
    said = read_form(reply, _Status)
    return said if isinstance(said, Unparsed) else said.criterion_status == "MET"


def parse_status(reply: str) -> bool | Unparsed:
    """Whether the criterion is met, by the official parse.

    Text around the object is dropped; any other status is no verdict.
    """
    parsed = parse_json(reply[reply.find("{") : reply.rfind("}") + 1])
    status = parsed.get("criterion_status") if isinstance(parsed, dict) else None
    return status == "MET" if status in ("MET", "UNMET") else Unparsed("criterion_status is not MET or UNMET")


def normalized_score(weights: Sequence[float], met: Sequence[bool]) -> float:
    """Weights met over positive weights, clipped; where all are negative 1 less the share of the errors made."""
    total = sum(weight for weight, is_met in zip(weights, met, strict=True) if is_met)
    positive = sum(weight for weight in weights if weight > 0)
    negative = sum(-weight for weight in weights if weight < 0)
    if positive:
        share = total / positive
    elif negative:
        share = 1 + total / negative
    else:
        share = 0.0
    return max(0.0, min(1.0, share))


def pass_rate(weights: Sequence[float], met: Sequence[bool]) -> float:
    """The share of criteria that count for the answer: positive and met, or negative and not."""
    passed = sum(weight != 0 and (weight > 0) == is_met for weight, is_met in zip(weights, met, strict=True))
    return passed / len(weights) if weights else 0.0


def grade(case: Case, grader: Grader) -> Asking[Grade]:
    """One round: every criterion. A task with a criterion that got no verdict leaves the mean."""
    if case.answer.is_empty:
        return grader.excluded("there is no answer")
    sections = case.gold_as(DracoGold).rubric.sections
    criteria = [criterion for section in sections for criterion in section.criteria]
    verdicts = yield tuple(
        grader.question(
            f"criterion-{number}",
            "draco",
            parse=read_status,
            official_parse=parse_status,
            official={"query_text": f"<query>{case.example.prompt_text}</query>"},
            question=case.example.prompt_text,
            answer=case.answer.text,
            criterion=criterion.requirement,
            kind="negative" if criterion.weight < 0 else "positive",
        )
        for number, criterion in enumerate(criteria)
    )
    weights = [criterion.weight for criterion in criteria]
    worst = [weight < 0 if isinstance(met, Unparsed) else met for weight, met in zip(weights, verdicts, strict=True)]
    labels = {f"criterion-{number}": str(met) for number, met in enumerate(verdicts) if isinstance(met, bool)}
    score = normalized_score(weights, worst)
    if len(labels) < len(verdicts) and not grader.rules.is_strict:
        return Grade(None, score, "a criterion got no verdict", labels=labels)
    metrics = {"pass_rate": pass_rate(weights, worst)}
    return Grade(score, score, metrics=metrics, labels=labels)


BENCHMARK = Benchmark(
    name="draco",
    title="DRACO",
    answer_format=AnswerFormat.LONG,
    load=load,
    grader=lambda rules: Grader(rules, grade, "score", prompts=("draco",)),
    official=official_rules("gemini-3-pro-preview", max_output_tokens=4096, citations="numbered"),
    hub="hf:perplexity-ai/draco/test.jsonl@ce076749809027649ebd331bcb70f42bf720d387",
    ids="id of the data file",
)
