from rubricem_agent.evals.parity.webwalkerqa import JudgedRow, recorded_run


def row(verdict: str | None, *, question: str = "q", level: str = "easy", prediction: str | None = "p") -> JudgedRow:
    info = {"type": "multi_source", "difficulty_level": level}
    return JudgedRow(question=question, info=info, pred=prediction, judge=verdict)


def test_nothing_scored_is_null_and_not_zero() -> None:
    assert recorded_run(())["report"]["overall"] is None


def test_a_question_given_twice_is_counted_in_the_cell_of_its_last_row() -> None:
    accuracies = recorded_run((row("correct"), row("incorrect", level="hard")))["report"]

    assert (accuracies["multi_source_easy"], accuracies["multi_source_hard"]) == (None, 0.5)
