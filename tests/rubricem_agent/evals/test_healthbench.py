import numpy as np
import pytest

from rubricem_agent.evals.base import API_ERROR, ScoringError, Unparsed
from rubricem_agent.evals.benchmarks.healthbench import (
    RubricItem,
    clipped_mean,
    drtulu_aggregate,
    grade_item,
    inspect_aggregate,
    inspect_met,
    inspect_score,
    length_adjusted,
    official_aggregate,
    parse_verdict,
    score_example,
    strict_verdict,
)

MET = '{"criteria_met": true}'
NOT_MET = '{"criteria_met": false}'


def item(points: float, *tags: str) -> RubricItem:
    return RubricItem(criterion="c", points=points, tags=tags)


@pytest.mark.parametrize("reply", [MET, f"```json\n{MET}\n```", f"  {MET}\n", f"{MET}```"])
def test_a_verdict_is_read_bare_or_from_a_json_fence(reply: str) -> None:
    assert parse_verdict(reply) is True


@pytest.mark.parametrize(
    "reply", [f"```\n{MET}\n```", '{"criteria_met": "true"}', '{"criteria_met": 1}', "{}", "[]", '"x"']
)
def test_an_unlabelled_fence_or_anything_but_a_boolean_is_asked_again(reply: str) -> None:
    assert isinstance(parse_verdict(reply), Unparsed)


@pytest.mark.parametrize("reply", ["5", "null", "true", '["criteria_met"]', '"criteria_met"'])
def test_json_that_is_no_object_raises_what_the_official_lookup_raises(reply: str) -> None:
    with pytest.raises(ScoringError) as raised:
        parse_verdict(reply)

    assert raised.value.official == "TypeError"


def test_a_judge_that_never_answers_stops_the_score_instead_of_counting_as_not_met() -> None:
    with pytest.raises(ScoringError) as raised:
        grade_item(["no", "still no"])

    assert (raised.value.official, raised.value.judge_calls) == ("JudgeNeverParsable", 2)


def test_the_score_is_points_met_over_positive_points_and_is_not_clipped() -> None:
    # Positive points 4. Met: -10. So -10 / 4 = -2.5; the tag b has only the negative item and is left out.
    score = score_example([item(4, "a"), item(-10, "b")], ["theme:x"], replies=[[NOT_MET], ["?", MET]])

    assert score.metrics == {"overall_score": -2.5, "theme:x": -2.5, "a": 0.0}
    assert score.judge_calls == 3


@pytest.mark.parametrize(
    ("rubrics", "tags", "official"),
    [
        ([], [], "ValueError"),
        ([item(-1)], [], "AssertionError"),
        ([item(1)], ["t", "t"], "AssertionError"),
        ([item(1, "a", "a")], [], "AssertionError"),
    ],
)
def test_what_the_official_scorer_refuses_is_refused_by_the_same_name(
    rubrics: list[RubricItem], tags: list[str], official: str
) -> None:
    with pytest.raises(ScoringError) as raised:
        score_example(rubrics, tags, replies=[[MET]] * len(rubrics))

    assert raised.value.official == official


def test_the_mean_is_clipped_after_averaging_so_that_a_negative_model_reads_zero() -> None:
    # (1 - 3) / 2 = -1, clipped to 0; clipping each first would give 0.5.
    assert clipped_mean(np.array([1.0, -3.0])) == 0.0


def test_the_official_bootstrap_draws_as_numpys_global_generator_does() -> None:
    examples = [{"overall_score": 0.2, "a": 1.0}, {"overall_score": 0.8}]
    np.random.seed(7)
    draws = [np.random.choice([0.2, 0.8], 2) for _ in range(50)]

    metrics = official_aggregate(examples, rng=np.random.RandomState(7), draws=50).metrics

    assert metrics["overall_score:bootstrap_std"] == pytest.approx(np.std([draw.mean() for draw in draws]), abs=1e-15)
    assert (metrics["overall_score:n_samples"], metrics["a:n_samples"]) == (2, 1)


def test_the_predecessors_mean_is_not_clipped() -> None:
    # (1 - 3) / 2 = -1; both lie 2 from it.
    aggregate = drtulu_aggregate([{"overall_score": 1.0}, {"overall_score": -3.0}])

    assert (aggregate.score, aggregate.metrics["overall_score:std"]) == (-1.0, 2.0)


def test_no_example_has_no_headline() -> None:
    assert official_aggregate([], rng=np.random.RandomState(0)) == (None, {})


def test_inspect_reads_bare_fences_and_gives_up_after_three_tries() -> None:
    assert inspect_met([f"```\n{MET}\n```"]) is True
    assert inspect_met(["a", "b", "c", MET]) is False


def test_inspect_counts_a_failure_on_a_negative_item_in_favour_of_the_model() -> None:
    # 4 of 4 positive points, and the failed -10 item counts as not met.
    rubrics = [item(4), item(-10)]

    assert inspect_score(rubrics, [True, inspect_met(["?"])]) == 1.0
    assert inspect_score([item(-1)], [True]) == 0.0


def test_length_adjustment_takes_the_penalty_per_500_characters_above_the_centre() -> None:
    # 1500 characters, centre 500: two steps of 0.1 off 0.5.
    assert length_adjusted(0.5, "x" * 1500, center=500, penalty_per_500_chars=0.1) == pytest.approx(0.3)


def test_strict_mode_counts_a_missing_verdict_as_the_worst_case() -> None:
    assert strict_verdict(["?"], points=3) is False
    assert strict_verdict(["?"], points=-3) is True
    assert strict_verdict(["5", MET], points=3) is True


def test_the_judge_sees_the_points_of_an_item() -> None:
    assert item(-4).for_judge() == "[-4] c"


def test_inspect_without_any_score_reads_zero() -> None:
    assert inspect_aggregate([], rng=np.random.default_rng(0)) == (0.0, 0.0)
    assert inspect_met([API_ERROR]) is False
