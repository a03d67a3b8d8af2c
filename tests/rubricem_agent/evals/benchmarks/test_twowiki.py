import pytest

from rubricem_agent.evals.base import ScoringError
from rubricem_agent.evals.benchmarks.twowiki import (
    Predictions,
    TwoWikiGold,
    alternatives,
    drtulu_exact,
    drtulu_f1,
    judge_says_correct,
    normalize_answer,
    score_answer,
    score_evidence,
    score_predictions,
    score_supporting_facts,
    token_overlap,
)


def question(**changes: object) -> TwoWikiGold:
    fields = {
        "id": "q",
        "answer": "Paris",
        "answer_id": "Q1",
        "supporting_facts": (("A", 0),),
        "evidences": (("A", "in", "B"),),
        "evidences_id": (),
    }
    return TwoWikiGold.model_validate(fields | changes)


def predict(**parts: object) -> Predictions:
    return Predictions.model_validate({"answer": {}, "sp": {}, "evidence": {}} | parts)


def test_normalising_drops_case_punctuation_articles_and_spare_spaces() -> None:
    assert normalize_answer(" The  U.S. of a-An ") == "us of aan"


def test_token_f1_counts_shared_tokens_once_each() -> None:
    # Shared 1 of 2 predicted and of 1 gold: P 1/2, R 1, F1 2/3.
    assert token_overlap("Paris Paris", "Paris") == pytest.approx((2 / 3, 0.5, 1.0))


def test_yes_and_no_must_match_exactly_and_empty_answers_share_no_token() -> None:
    assert score_answer("yes, it is", ["yes"]) == (0, 0, 0, 0)
    assert score_answer("no", ["No Country"]) == (0, 0, 0, 0)
    assert score_answer("the", ["a"]) == (1, 0, 0, 0)


def test_each_measure_is_the_best_over_the_gold_answers_by_itself() -> None:
    # "b" against "b c x" has P 1, R 1/3; against "b" all 1. "x y" against "x" has P 1/2, R 1, F1 2/3.
    assert score_answer("b", ["b c x", "b"]) == (1, 1, 1, 1)
    assert score_answer("x y", ["x", "q"]) == pytest.approx((0, 2 / 3, 0.5, 1))


@pytest.mark.parametrize(
    ("reply", "is_correct"),
    [
        ("Correct: YES", True),
        ("incorrect: yes", True),
        ("correct: no, correct: yes", False),
        ("yes", False),
        ("", False),
    ],
)
def test_the_first_correct_line_decides_even_inside_incorrect(reply: str, is_correct: bool) -> None:
    assert judge_says_correct(reply) is is_correct


def test_dr_tulu_takes_its_label_off_for_exact_match_only() -> None:
    # F1 with the label: tokens exact, answer, paris against paris: P 1/3, R 1, F1 1/2.
    assert drtulu_exact("Exact Answer: Paris", ["paris"])
    assert drtulu_f1("Exact Answer: Paris", ["paris"]) == 0.5
    with pytest.raises(ScoringError, match="no gold answer"):
        drtulu_f1("x", [])


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


def test_a_missing_prediction_scores_zero_over_all_gold_and_warns() -> None:
    # One of two answered right: 50; joint needs all three parts, which neither has.
    gold = [question(), question(id="r")]

    metrics, warnings = score_predictions(predict(answer={"r": "paris"}, sp={"r": ()}), gold, aliases={})

    assert (metrics["em"], metrics["joint_em"]) == (50.0, 0.0)
    assert warnings == ["missing answer q", "missing sp fact q", "missing evidence q", "missing evidence r"]


def test_the_joint_scores_multiply_the_parts_and_aliases_count_for_answers() -> None:
    # Answer by alias 1; facts P 1/2, R 1; evidence 1: joint P 0.5, R 1, F1 2/3.
    parts = predict(answer={"q": "Lutetia"}, sp={"q": (("A", 0), ("B", 1))}, evidence={"q": (("a", "in", "b"),)})

    metrics, _ = score_predictions(parts, [question()], aliases={"Q1": frozenset({"Lutetia"})})

    assert (metrics["em"], metrics["joint_prec"], metrics["joint_f1"]) == (100.0, 50.0, 66.67)


def test_no_gold_question_divides_by_zero() -> None:
    with pytest.raises(ScoringError) as raised:
        score_predictions(predict(), [], aliases={})

    assert raised.value.official == "ZeroDivisionError"
