import pytest

from rubricem_agent.evals.benchmarks.webwalkerqa import (
    JudgedRow,
    parse_grade,
    report,
    tongyi_says_correct,
)


def row(verdict: str | None, *, question: str = "q", level: str = "easy", prediction: str | None = "p") -> JudgedRow:
    info = {"type": "multi_source", "difficulty_level": level}
    return JudgedRow(question=question, info=info, pred=prediction, judge=verdict)


@pytest.mark.parametrize(
    ("reply", "grade"),
    [
        ("x grade:  incorrect GRADE: CORRECT", "INCORRECT"),
        ("Correct. Because", "CORRECT"),
        ("GRADE: PARTIALLY CORRECT", "CORRECT"),
        ("so **INCORRECT**!", "INCORRECT"),
        ("I cannot", None),
        ("  ", None),
    ],
)
def test_the_grade_is_the_marked_one_then_the_first_word_then_the_last(reply: str, grade: str | None) -> None:
    assert parse_grade(reply) == grade


def test_unreadable_verdicts_and_missing_answers_leave_the_mean() -> None:
    rows = [row("GRADE: CORRECT"), row("unclear"), row("GRADE: CORRECT", prediction=None), row(None)]

    assert report(rows)["overall"] == 1.0


def test_empty_cells_are_null_and_an_unknown_difficulty_counts_overall_only() -> None:
    accuracies = report([row("correct"), row("incorrect", question="r", level="odd")])

    assert (accuracies["multi_source_easy"], accuracies["single_source_hard"], accuracies["overall"]) == (
        1.0,
        None,
        0.5,
    )


def test_nothing_scored_is_null_and_not_zero() -> None:
    assert report([])["overall"] is None


def test_a_question_given_twice_is_counted_in_the_cell_of_its_last_row() -> None:
    accuracies = report([row("correct"), row("incorrect", level="hard")])

    assert (accuracies["multi_source_easy"], accuracies["multi_source_hard"]) == (None, 0.5)


@pytest.mark.parametrize(
    ("judgement", "is_correct"),
    [("CORRECT", True), ("Answer: B", True), (" correct", False), ("", False), ("B", False)],
)
def test_the_tongyi_rule_takes_anything_that_begins_with_an_a(judgement: str, is_correct: bool) -> None:
    assert tongyi_says_correct(judgement) is is_correct
