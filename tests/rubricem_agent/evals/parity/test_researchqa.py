from rubricem_agent.evals.parity.recorded_judge import API_ERROR
from rubricem_agent.evals.parity.researchqa import RecordedRubric, recorded_run

TWO = RecordedRubric(id="q", rubric=("a", "b"))


def test_a_failed_request_drops_the_question_at_once() -> None:
    run = recorded_run((TWO,), {"q": "x"}, {"q:0": (API_ERROR, "Mostly\nMostly")})

    assert run == {"scored_item_ids": [], "coverages": {}, "average": None, "judge_calls": 1}


def test_items_go_out_in_batches_and_the_last_is_shorter() -> None:
    # Two batches of one: Completely 1 and Not at all 0, mean 0.5.
    run = recorded_run((TWO,), {"q": "x"}, {"q:0": ("Completely",), "q:1": ("Not at all",)}, batch_size=1)

    assert run == {"scored_item_ids": ["q"], "coverages": {"q": 0.5}, "average": 0.5, "judge_calls": 2}
