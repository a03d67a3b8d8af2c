"""The scripted form of a reflection: it names duties, and never a value that only a page may tell."""

import pytest

from rubricem_env.world.jsonl import load_questions, shipped_questions_path
from rubricem_env.world.lesson import lesson_of
from rubricem_env.world.questions import Question

QUESTIONS = load_questions(shipped_questions_path())


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)
def test_a_lesson_tells_the_duties_and_no_fact(question: Question) -> None:
    lesson = lesson_of(question)
    told = f"{lesson.rubrics} {lesson.takeaways}"

    assert not any(need.is_met_by(told) for need in question.truth.needs)
    for duty in question.truth.implicit_needs:
        assert (duty.value if duty.kind == "closing" else duty.aspect) in lesson.rubrics
        assert duty.kind == "closing" or duty.value not in told.split()


def test_a_lesson_reads_so() -> None:
    comparison = next(question for question in QUESTIONS if question.truth.kind == "comparison")

    assert lesson_of(comparison) == (
        "The answer states the season and says that all figures are at low water.",
        "Search the reporting convention of rivers and follow it.",
    )
