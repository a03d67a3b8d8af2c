import pytest

from rubricem_agent.evals.benchmarks.simpleqa import parse_standalone_letter, rates, read_letter
from rubricem_agent.evals.reply_parsing import Unparsed
from rubricem_agent.evals.scoring_error import ScoringError


def test_a_reply_is_one_letter_and_nothing_else() -> None:
    assert [read_letter(reply) for reply in ("A", " B.\n", "**C**", '"A"')] == ["A", "B", "C", "A"]
    for reply in ("Answer: C", "INCORRECT", "NOT_ATTEMPTED", "I cannot", "a", "\uff21", "\u0410", "A or B", "A\nB", ""):
        assert isinstance(read_letter(reply), Unparsed)


def test_another_harness_reads_a_letter_that_stands_alone() -> None:
    assert parse_standalone_letter("Answer: C") == "C"
    assert parse_standalone_letter("INCORRECT") == "C"


def test_no_answers_at_all_are_refused() -> None:
    with pytest.raises(ScoringError, match="no answer"):
        rates([])
