from rubricem_agent.evals.base import API_ERROR, Unparsed
from rubricem_agent.evals.benchmarks.researchqa import (
    RecordedRubric,
    parse_batch,
    score_run,
)

TWO = RecordedRubric(id="q", rubric=("a", "b"))
OTHER = RecordedRubric(id="r", rubric=("a",))


def test_a_batch_needs_one_line_per_item_and_blank_lines_do_not_count() -> None:
    assert parse_batch(" Mostly \r\n\n Barely", size=2) == ["Mostly", "Barely"]
    assert isinstance(parse_batch("Mostly", size=2), Unparsed)


def test_a_failed_request_drops_the_question_at_once() -> None:
    score = score_run([TWO], {"q": "x"}, replies={("q", 0): [API_ERROR, "Mostly\nMostly"]})

    assert score == ([], 1)


def test_items_go_out_in_batches_and_the_last_is_shorter() -> None:
    # Two batches of one: Completely 1 and Not at all 0, mean 0.5.
    replies = {("q", 0): ["Completely"], ("q", 1): ["Not at all"]}

    assert score_run([TWO], {"q": "x"}, replies=replies, batch_size=1) == ([("q", 0.5)], 2)
