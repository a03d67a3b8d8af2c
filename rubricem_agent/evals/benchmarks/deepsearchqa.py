"""DeepSearchQA: which parts of a gold answer a reply holds, and what it says in excess.

The judge splits the gold answer, not the code. Empty answers and empty or malformed ratings are excluded from every
denominator officially; `deepsearchqa_aggregate` counts them and offers the strict variant beside it.

The interval text that DeepSearchQA prints, letter by letter.

DeepSearchQA files: CSV. The answer type tells how many answers to look for and must not reach the agent.

DeepSearchQA over many answers: macro precision, recall and F1, three strict rates, and what was excluded.

DeepSearchQA: the judge splits the gold answer, says which parts are there, and lists what is in excess.

Recorded DeepSearchQA cases.
"""

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, JsonValue

from rubricem_agent.evals.base import (
    Benchmark,
    CaseInput,
    Example,
    Gold,
    RecordedInput,
    Rules,
    ScoringError,
    Unit,
    Unparsed,
    parse_json,
)
from rubricem_agent.evals.files import Expectation, FileRow, assemble, csv_rows, read_row
from rubricem_agent.evals.grading import Case, Grade, GradedExample, Grading, GradingQuestion, JudgePrompts, Totals
from rubricem_env.domain.base import Text

_OPENING = "```json"
_FENCE = "```"


class Exclusion(StrEnum):
    """Why an answer leaves every denominator."""

    EMPTY_RESPONSE = "empty_response"
    EMPTY_RATER = "empty_rater"
    INVALID_RATER = "invalid_rater"


class Rating(NamedTuple):
    """The judge's count: expected parts, those found, and answers in excess."""

    expected: int
    found: int
    excessive: int

    @property
    def precision(self) -> float:
        return _ratio(self.found, self.found + self.excessive)

    @property
    def recall(self) -> float:
        return _ratio(self.found, self.expected)

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * (self.precision * self.recall) / both if both > 0 else 0.0

    @property
    def is_fully_correct(self) -> bool:
        """Every part found and nothing in excess. A rating with no part at all counts as correct, with P = R = F1 = 0."""
        return self.found == self.expected and not self.excessive

    @property
    def is_correct_with_excessive(self) -> bool:
        return self.found == self.expected and self.excessive > 0

    @property
    def is_fully_incorrect(self) -> bool:
        """No part found although there was one to find."""
        return self.expected > 0 and self.found == 0


def rate(response: str, reply: str) -> Rating | Exclusion:
    """Rate one answer from the judge's reply. An empty answer comes before any look at the reply."""
    if not response.strip():
        return Exclusion.EMPTY_RESPONSE
    if not reply:
        return Exclusion.EMPTY_RATER
    return parse_rating(reply)


def parse_rating(reply: str) -> Rating | Exclusion:
    """Invalid: broken JSON, a missing node or explanation, a detail that is no boolean, an excess that is no list of texts.

    A missing excess is fine. JSON that is neither an object nor empty raises ScoringError("AttributeError").
    """
    parsed = parse_json(_unfenced(reply))
    if isinstance(parsed, Unparsed) or not parsed:
        return Exclusion.INVALID_RATER
    if not isinstance(parsed, dict):
        raise ScoringError("AttributeError", f"the rating is a JSON {type(parsed).__name__}, not an object")
    node = parsed.get("Answer Correctness")
    if not isinstance(node, dict) or not isinstance(node.get("Explanation"), str):
        return Exclusion.INVALID_RATER
    return _count(node.get("Correctness Details"), node.get("Excessive Answers", []))


def _count(details: JsonValue, excessive: JsonValue) -> Rating | Exclusion:
    if not isinstance(details, dict) or not all(isinstance(found, bool) for found in details.values()):
        return Exclusion.INVALID_RATER
    if not isinstance(excessive, list) or not all(isinstance(answer, str) for answer in excessive):
        return Exclusion.INVALID_RATER
    return Rating(len(details), list(details.values()).count(True), len(excessive))


def _unfenced(reply: str) -> str:
    """What stands between the first fence labelled json and the last fence; a bare fence is not taken off."""
    _, opening, content = reply.strip().partition(_OPENING)
    if not opening:
        return reply.strip()
    inside, closing, _ = content.strip().rpartition(_FENCE)
    return inside.strip() if closing else content.strip()


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole > 0 else 0.0


Z_95 = 1.96
FEW = 5


def wald_text(count: int, total: int) -> str:
    """Percent ± half-width of the 95 percent Wald interval, with the count; a count outside 0..total is moved to its edge."""
    if total == 0:
        return f"N/A ({count}/{total})"
    count = min(max(count, 0), total)
    share = count / total
    half_width = Z_95 * math.sqrt(share * (1.0 - share) / total) * 100.0
    note = " (CI not robust for n<=5)" if total <= FEW else ""
    return f"{round(share * 100.0, 2):.2f} ± {round(half_width, 2):.2f} ({count}/{total}){note}"


OFFICIAL = Expectation(rows=900, sha256="25d48dcf7efa872e5467032e8b8eedf38d301f59a252d0da95cda584baa78396")
COLUMNS = ("problem", "problem_category", "answer", "answer_type")

AnswerType = Literal["Single Answer", "Set Answer"]


class DeepSearchQAGold(Gold):
    """The answer as one text (the judge splits it), its type and its category."""

    answer: Text
    answer_type: AnswerType
    problem_category: Text


class _Row(FileRow):
    problem: Text = Field(min_length=1)
    answer: Text = Field(min_length=1)
    answer_type: AnswerType
    problem_category: Text
    example_id: Text | None = None


def load(path: Path, *, expect: Expectation = OFFICIAL) -> Benchmark[DeepSearchQAGold]:
    """Problems for the agent; answer, type and category in the gold. Without example_id the row number from 0 is the id."""
    rows = [read_row(place, _Row) for place in csv_rows(path, columns=COLUMNS)]
    ids = [row.example_id or str(number) for number, row in enumerate(rows)]
    gold = [
        DeepSearchQAGold(
            id=row_id, answer=row.answer, answer_type=row.answer_type, problem_category=row.problem_category
        )
        for row_id, row in zip(ids, rows, strict=True)
    ]
    examples = [Example(id=row_id, prompt_text=row.problem) for row_id, row in zip(ids, rows, strict=True)]
    return assemble(path, examples, gold=gold, expect=expect)


Outcome = Rating | Exclusion | None
"""None: the rating stopped the official parser, which then counts the answer as valid and evaluates it nowhere."""


class MacroScores(NamedTuple):
    """Unweighted means over the evaluated answers."""

    precision: float
    recall: float
    f1_score: float


def macro_scores(outcomes: Sequence[Outcome]) -> MacroScores | None:
    """The official macro means, exclusions left out; None where nothing was evaluated."""
    ratings = _ratings(outcomes)
    if not ratings:
        return None
    columns = ([r.precision for r in ratings], [r.recall for r in ratings], [r.f1 for r in ratings])
    return MacroScores(*(float(np.mean(column)) for column in columns))


def strict_scores(outcomes: Sequence[Outcome]) -> MacroScores:
    """Strict mode: every exclusion counts 0. The means over all answers."""
    macro = macro_scores(outcomes)
    if macro is None:
        return MacroScores(0.0, 0.0, 0.0)
    share = len(_ratings(outcomes)) / len(outcomes)
    return MacroScores(*(value * share for value in macro))


def official_summary(outcomes: Sequence[Outcome]) -> dict[str, int | float | str]:
    """The official project rating, texts included; empty texts where nothing was evaluated."""
    if not outcomes:
        raise ScoringError("AssertionError", "there is no item to aggregate")
    ratings = _ratings(outcomes)
    empty, invalid, silent = (
        outcomes.count(kind) for kind in (Exclusion.EMPTY_RESPONSE, Exclusion.INVALID_RATER, Exclusion.EMPTY_RATER)
    )
    macro = macro_scores(outcomes)
    precision, recall, f1 = ("", "", "") if macro is None else (f"{value:.2%}" for value in macro)
    return {
        "num_total_ratings": len(outcomes),
        "num_empty_model_response": empty,
        "num_invalid_auto_rater_response": invalid,
        "num_empty_auto_rater_response": silent,
        "num_valid_ratings": len(outcomes) - empty - invalid - silent,
        "num_answer_correctness_evaluated": len(ratings),
        "pct_w_ci_all_answers_correct": _rate_text(ratings, lambda rating: rating.is_fully_correct),
        "pct_w_ci_fully_incorrect_items": _rate_text(ratings, lambda rating: rating.is_fully_incorrect),
        "pct_w_ci_correct_with_excessive_answers": _rate_text(ratings, lambda rating: rating.is_correct_with_excessive),
        "pct_empty_model_response": round(empty * 100.0 / len(outcomes), 2),
        "pct_invalid_auto_rater_response": round(invalid * 100.0 / len(outcomes), 2),
        "pct_empty_auto_rater_response": round(silent * 100.0 / len(outcomes), 2),
        "precision": precision,
        "recall": recall,
        "f1_score": f1,
    }


def _ratings(outcomes: Sequence[Outcome]) -> list[Rating]:
    return [outcome for outcome in outcomes if isinstance(outcome, Rating)]


def _rate_text(ratings: Sequence[Rating], claim: Callable[[Rating], bool]) -> str:
    return wald_text(sum(map(claim, ratings)), len(ratings)) if ratings else ""


STOPPED = "the rating is JSON but no object"


class DeepSearchQAGrader:
    """Official and strict DeepSearchQA. The headline is the rate of fully correct answers (the paper's "exact match")."""

    is_binary = True

    def __init__(self, rules: Rules, prompts: JudgePrompts) -> None:
        self._rules = rules
        self._prompts = prompts

    @classmethod
    def for_rules(cls, rules: Rules) -> "DeepSearchQAGrader":
        return cls(rules, JudgePrompts.read("deepsearchqa"))

    @property
    def prompt_hash(self) -> str:
        return self._prompts.hash

    def grade(self, case: Case) -> Grading:
        """One question; an empty answer is excluded without one."""
        gold = case.gold_as(DeepSearchQAGold)
        if case.answer.is_empty:
            return self._excluded(Exclusion.EMPTY_RESPONSE)
        prompt = self._prompts.user(
            "deepsearchqa",
            question=case.example.prompt_text,
            gold=gold.answer,
            answer_type=gold.answer_type,
            response=case.answer.text,
        )
        ((reply,),) = yield (GradingQuestion("rating", prompt),)
        try:
            outcome = rate(case.answer.text, reply)
        except ScoringError:
            return self._excluded(STOPPED)
        return self._excluded(outcome) if isinstance(outcome, Exclusion) else _graded(outcome)

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        """The three rates and the macro means, and the texts of the official project rating."""
        outcomes = [_outcome(one.grade) for one in graded]
        ratings = [outcome for outcome in outcomes if isinstance(outcome, Rating)]
        # Officially the denominator is what was evaluated; strictly it is every answer.
        size = len(outcomes) if self._rules.is_strict else len(ratings)
        if not size:
            return Totals("fully_correct", {"fully_correct": None})
        macro = macro_scores(outcomes)
        share = len(ratings) / size
        means = {name: value * share for name, value in macro._asdict().items()} if macro else {"f1_score": 0.0}
        counts = {
            "fully_correct": sum(rating.is_fully_correct for rating in ratings),
            "correct_with_excessive": sum(rating.is_correct_with_excessive for rating in ratings),
            "fully_incorrect": sum(rating.is_fully_incorrect for rating in ratings) + size - len(ratings),
        }
        texts = {name: str(value) for name, value in official_summary(outcomes).items()}
        return Totals("fully_correct", {**{n: c / size for n, c in counts.items()}, **means}, texts)

    def _excluded(self, reason: str) -> Grade:
        score = 0.0 if self._rules.is_strict else None
        unreadable = int(reason in (Exclusion.INVALID_RATER, Exclusion.EMPTY_RATER, STOPPED))
        return Grade(score, 0.0, str(reason), unreadable=unreadable)


def _graded(rating: Rating) -> Grade:
    correct = float(rating.is_fully_correct)
    label = f"{rating.found}/{rating.expected}+{rating.excessive}"
    return Grade(correct, correct, labels={"rating": label}, record=rating._asdict())


def _outcome(grade: Grade) -> Outcome:
    if not grade.record:
        return Exclusion(grade.excluded) if grade.excluded in list(Exclusion) else None
    return Rating(*(count for name in Rating._fields if isinstance(count := grade.record[name], int)))


class DeepSearchQAItemInput(RecordedInput):
    response: Text | None
    judge_text: Text | None

    def rate(self) -> Rating | Exclusion:
        return rate(self.response or "", self.judge_text or "")


class DeepSearchQAAggregateInput(RecordedInput):
    items: tuple[DeepSearchQAItemInput, ...]


class DeepSearchQAIntervalInput(RecordedInput):
    count: int
    total: int


def recorded_score_item(case_input: CaseInput) -> object:
    rating = DeepSearchQAItemInput.read(case_input).rate()
    if isinstance(rating, Exclusion):
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


def recorded_aggregate(case_input: CaseInput) -> object:
    outcomes = [_recorded_outcome(item) for item in DeepSearchQAAggregateInput.read(case_input).items]
    macro = macro_scores(outcomes)
    unrounded = dict.fromkeys(MacroScores._fields) if macro is None else macro._asdict()
    return {"official": official_summary(outcomes), "macro_unrounded": unrounded}


def recorded_interval(case_input: CaseInput) -> object:
    case = DeepSearchQAIntervalInput.read(case_input)
    return {"text": wald_text(case.count, case.total)}


def _recorded_outcome(item: DeepSearchQAItemInput) -> Outcome:
    try:
        return item.rate()
    except ScoringError:
        return None


UNITS = {"item": Unit(recorded_score_item), "aggregate": Unit(recorded_aggregate), "ci": Unit(recorded_interval)}
