"""Questions about one answer, as they are before any judge is asked."""

from rubricem_agent.evals.grading import GradingQuestion


def test_a_question_is_asked_once_unless_it_says_otherwise_so_that_pages_are_read():
    assert GradingQuestion("page https://a.example", "https://a.example", is_page=True).tries == 1
