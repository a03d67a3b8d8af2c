"""DeepSearchQA: which parts of a gold answer a reply contains, and what it states in excess.

The judge splits the gold answer, not the code. Empty answers and empty or malformed ratings are excluded from every
denominator officially; strict mode counts them as 0. Files are CSV; the answer type says how many answers to look for
and must not reach the agent.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple, get_args

import numpy as np
from pydantic import AliasChoices, Field

from rubricem_agent.evals.benchmark import Benchmark
from rubricem_agent.evals.dataset import Gold
from rubricem_agent.evals.files import csv_rows, rows_loader
from rubricem_agent.evals.grading import Asking, Case, Grade, Grader, Totals
from rubricem_agent.evals.reply_parsing import NO_VERDICT, Unparsed, parse_json, read_form
from rubricem_agent.evals.rules import official_rules, paper_rules
from rubricem_agent.evals.scoring_error import ScoringError
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_records.evaluations.rules import Rules

Exclusion = Literal["empty_response", "empty_rater", "invalid_rater"]
"""Why an answer leaves every denominator."""
OFFICIAL_NAMES: Mapping[Exclusion, str] = {
    "empty_response": "empty_model_response",
    "invalid_rater": "invalid_auto_rater_response",
    "empty_rater": "empty_auto_rater_response",
}
MACRO = ("precision", "recall", "f1_score")
STOPPED = "the rating is JSON but no object"
"""The official parser raises on such a rating: the answer counts as valid and is evaluated nowhere."""


class DeepSearchQAGold(Gold):
    """A row of the file: the answer as one text (the judge splits it), its type and its category.

    The row number from 0 is the id where the file has no example_id.
    """

    id: Text = Field(validation_alias=AliasChoices("example_id", "id"))
    problem: Text = Field(min_length=1)
    answer: Text = Field(min_length=1)
    answer_type: Literal["Single Answer", "Set Answer"]
    problem_category: Text


load = rows_loader(
    "deepsearchqa",
    partial(csv_rows, columns=("problem", "problem_category", "answer", "answer_type")),
    DeepSearchQAGold,
    prompt=lambda row: row.problem,
    is_numbered=True,
    num_rows=900,
    sha256="25d48dcf7efa872e5467032e8b8eedf38d301f59a252d0da95cda584baa78396",
)


class Rating(NamedTuple):
    """The judge's counts: expected parts, those found, and answers in excess."""

    expected: int
    found: int
    excessive: int

    @property
    def measures(self) -> dict[str, float]:
        """Precision, recall, F1, and 1 or 0 for fully correct, fully incorrect, and correct with excessive answers.

        A rating with no part at all counts as fully correct, with P = R = F1 = 0.
        """
        precision = self.found / (self.found + self.excessive) if self.found + self.excessive > 0 else 0.0
        recall = self.found / self.expected if self.expected > 0 else 0.0
        both = precision + recall
        is_whole = self.found == self.expected
        return {
            "precision": precision,
            "recall": recall,
            "f1_score": 2 * (precision * recall) / both if both > 0 else 0.0,
            "fully_correct": int(is_whole and not self.excessive),
            "fully_incorrect": int(self.expected > 0 and self.found == 0),
            "correct_with_excessive": int(is_whole and self.excessive > 0),
        }


class _Correctness(Frozen):
    explanation: str = Field(alias="Explanation")
    details: dict[str, bool] = Field(alias="Correctness Details", min_length=1)
    excessive: list[str] = Field(alias="Excessive Answers")


class _RatingForm(Frozen):
    correctness: _Correctness = Field(alias="Answer Correctness")


def read_rating(reply: str) -> Rating | Unparsed:
    """The counts in a reply that is one JSON object of the form that was asked for, with at least one expected part."""
    form = read_form(reply, _RatingForm)
    if isinstance(form, Unparsed):
        return form
    details = form.correctness.details
    return Rating(len(details), list(details.values()).count(True), len(form.correctness.excessive))


def rate(response: str, reply: str) -> Rating | Exclusion:
    """Rate one answer from the judge's reply. An empty answer is excluded before the reply is read."""
    if not response.strip():
        return "empty_response"
    return parse_rating(reply) if reply else "empty_rater"


def parse_rating(reply: str) -> Rating | Exclusion:
    """The counts in the judge's reply, by the official parse.

    Invalid are broken JSON, a missing node or explanation, a detail that is no boolean, and an excess that is no list
    of texts. A missing excess is fine. JSON that is neither an object nor empty raises ScoringError("AttributeError").
    """
    parsed = parse_json(_unfenced(reply))
    if isinstance(parsed, Unparsed) or not parsed:
        return "invalid_rater"
    if not isinstance(parsed, dict):
        raise ScoringError("AttributeError", f"the rating is a JSON {type(parsed).__name__}, not an object")
    node = parsed.get("Answer Correctness")
    if not isinstance(node, dict) or not isinstance(node.get("Explanation"), str):
        return "invalid_rater"
    details = node.get("Correctness Details")
    excessive = node.get("Excessive Answers", [])
    if not isinstance(details, dict) or not all(isinstance(is_found, bool) for is_found in details.values()):
        return "invalid_rater"
    if not isinstance(excessive, list) or not all(isinstance(answer, str) for answer in excessive):
        return "invalid_rater"
    return Rating(len(details), list(details.values()).count(True), len(excessive))


def _unfenced(reply: str) -> str:
    """The text between the first fence labelled json and the last fence; a bare fence is not removed."""
    _, opening, content = reply.strip().partition("```json")
    if not opening:
        return reply.strip()
    inside, closing, _ = content.strip().rpartition("```")
    return inside.strip() if closing else content.strip()


def wald_text(count: int, total: int) -> str:
    """Percent ± half-width of the 95 percent Wald interval, with the count.

    A count outside 0..total is moved to its edge.
    """
    if total == 0:
        return f"N/A ({count}/{total})"
    count = min(max(count, 0), total)
    share = count / total
    half_width = 1.96 * math.sqrt(share * (1.0 - share) / total) * 100.0
    note = " (CI not robust for n<=5)" if total <= 5 else ""
    return f"{round(share * 100.0, 2):.2f} ± {round(half_width, 2):.2f} ({count}/{total}){note}"


Outcome = Rating | Exclusion | None
"""None: the rating stopped the official parser (STOPPED)."""


def macro_scores(outcomes: Sequence[Outcome]) -> dict[str, float] | None:
    """The official macro means, exclusions left out; None where nothing was evaluated."""
    measured = _measured(outcomes)
    return {name: float(np.mean([measures[name] for measures in measured])) for name in MACRO} if measured else None


def official_summary(outcomes: Sequence[Outcome]) -> dict[str, int | float | str]:
    """The official project rating, texts included; empty texts where nothing was evaluated."""
    if not outcomes:
        raise ScoringError("AssertionError", "there is no item to aggregate")
    measured = _measured(outcomes)
    counts = {name: outcomes.count(kind) for kind, name in OFFICIAL_NAMES.items()}
    macro = macro_scores(outcomes) or {}

    def rate_text(name: str) -> str:
        return wald_text(sum(int(measures[name]) for measures in measured), len(measured)) if measured else ""

    return {
        "num_total_ratings": len(outcomes),
        **{f"num_{name}": count for name, count in counts.items()},
        "num_valid_ratings": len(outcomes) - sum(counts.values()),
        "num_answer_correctness_evaluated": len(measured),
        "pct_w_ci_all_answers_correct": rate_text("fully_correct"),
        "pct_w_ci_fully_incorrect_items": rate_text("fully_incorrect"),
        "pct_w_ci_correct_with_excessive_answers": rate_text("correct_with_excessive"),
        **{f"pct_{name}": round(count * 100.0 / len(outcomes), 2) for name, count in counts.items()},
        **{name: f"{macro[name]:.2%}" if macro else "" for name in MACRO},
    }


def _measured(outcomes: Sequence[Outcome]) -> list[dict[str, float]]:
    return [outcome.measures for outcome in outcomes if isinstance(outcome, Rating)]


def _parse_officially(reply: str) -> Rating | Unparsed:
    try:
        rating = parse_rating(reply)
    except ScoringError:
        return Unparsed(STOPPED)
    return rating if isinstance(rating, Rating) else NO_VERDICT


def grade(case: Case, grader: Grader) -> Asking[Grade]:
    """One question; an empty answer is excluded without one."""
    if case.answer.is_empty:
        return grader.excluded("empty_response")
    gold = case.gold_as(DeepSearchQAGold)
    question = grader.question(
        "rating",
        "deepsearchqa",
        parse=read_rating,
        official_parse=_parse_officially,
        question=case.example.prompt_text,
        gold=gold.answer,
        answer_type=gold.answer_type,
        response=case.answer.text,
    )
    (rating,) = yield (question,)
    if isinstance(rating, Unparsed):
        return grader.excluded(STOPPED if rating.reason == STOPPED else "invalid_rater")
    correct = float(rating.measures["fully_correct"])
    label = f"{rating.found}/{rating.expected}+{rating.excessive}"
    return Grade(correct, correct, labels={"rating": label}, record=rating._asdict())


def total(grades: Sequence[Grade], rules: Rules) -> Totals:
    """The three rates and the macro means. Officially the denominator is what was evaluated; strictly, every answer."""
    outcomes = [_outcome(grade) for grade in grades]
    measured = _measured(outcomes)
    size = len(outcomes) if rules.is_strict else len(measured)
    if not size:
        return {"fully_correct": None}
    macro = macro_scores(outcomes)
    share = len(measured) / size
    names = ("fully_correct", "correct_with_excessive", "fully_incorrect")
    counts = {name: sum(measures[name] for measures in measured) for name in names}
    counts["fully_incorrect"] += size - len(measured)
    means = {name: value * share for name, value in macro.items()} if macro else {"f1_score": 0.0}
    return {**{name: count / size for name, count in counts.items()}, **means}


def official_texts(grades: Sequence[Grade], rules: Rules) -> dict[str, str]:
    """The official project rating, where there is anything to rate."""
    outcomes = [_outcome(grade) for grade in grades]
    if not (outcomes if rules.is_strict else _measured(outcomes)):
        return {}
    return {name: str(value) for name, value in official_summary(outcomes).items()}


def _outcome(grade: Grade) -> Outcome:
    if not grade.record:
        return next((exclusion for exclusion in get_args(Exclusion) if exclusion == grade.excluded), None)
    return Rating(*(count for name in Rating._fields if isinstance(count := grade.record[name], int)))


OFFICIAL = official_rules("gemini-2.5-flash", tries=1, max_output_tokens=8192)
BENCHMARK = Benchmark(
    name="deepsearchqa",
    title="DSQA",
    answer_format=AnswerFormat.EXACT,
    load=load,
    grader=lambda rules: Grader(
        rules, grade, "fully_correct", total, texts=official_texts, prompts=("deepsearchqa",), is_binary=True
    ),
    official=OFFICIAL,
    paper=paper_rules(OFFICIAL),
    hub="hf:google/deepsearchqa/DSQA-full.csv@b2623f8653065c2672de6d941fc5434cd652376c",
    guidance="If the question has several answers, give all of them in one \\boxed{}, separated by commas.",
    ids="example_id of the data file; row numbers from 0 where it has none",
)
