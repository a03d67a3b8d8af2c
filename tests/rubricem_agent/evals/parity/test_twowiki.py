import pytest

from rubricem_agent.evals.parity.twowiki import (
    Predictions,
    alternatives,
    score_evidence,
    score_predictions,
    score_supporting_facts,
)
from rubricem_agent.evals.scoring_error import ScoringError


def predict(**parts: object) -> Predictions:
    return Predictions.model_validate({"answer": {}, "sp": {}, "evidence": {}} | parts)


def test_supporting_facts_drop_repeats_before_case_so_that_two_spellings_count_twice() -> None:
    assert score_supporting_facts([("A", 0), ("a", 0)], [("A", 0)]) == (1, 1, 1, 1)
    assert score_supporting_facts([], []) == (1, 0, 0, 0)


def test_an_alias_is_as_good_as_the_name_and_two_spellings_raise_recall_above_one() -> None:
    gold = alternatives([("A", "in", "B")], [("Q1", "in", "Q2")], aliases={"Q2": frozenset({"Bee!"})})

    # Two predictions match one gold triple: P 2/2, R 2/1, F1 2*2/3.
    assert score_evidence([("a", "in", "bee"), ("A", "in", "B")], gold) == pytest.approx((0, 4 / 3, 1, 2))


@pytest.mark.parametrize("ids", [[("Q1", "at", "Q2")], [("Q1", "in", "Q2")] * 2])
def test_evidence_ids_that_do_not_fit_fail_the_official_assertion(ids: list[tuple[str, str, str]]) -> None:
    with pytest.raises(ScoringError) as raised:
        alternatives([("A", "in", "B")], ids, aliases={})

    assert raised.value.official == "AssertionError"


def test_no_gold_question_divides_by_zero() -> None:
    with pytest.raises(ScoringError) as raised:
        score_predictions(predict(), [], aliases={})

    assert raised.value.official == "ZeroDivisionError"
