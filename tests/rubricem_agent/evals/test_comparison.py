import pytest

from rubricem_agent.evals.parity import case_differences


@pytest.mark.parametrize(
    ("expected", "computed"),
    [
        ({"x": 0.1 + 0.2}, {"x": 0.3}),
        ({"x": 0}, {"x": 0.0}),
        ({"x": float("nan")}, {"x": float("nan")}),
        ({"x": [1, {"y": None}]}, {"x": (1, {"y": None})}),
        ({"x": 1, "note": "said"}, {"x": 1, "beyond": 2}),
        ({"status": "empty_model_response"}, {"status": "empty_response"}),
    ],
)
def test_values_that_mean_the_same_agree(expected: dict[str, object], computed: dict[str, object]) -> None:
    assert case_differences(expected, computed) == []


@pytest.mark.parametrize(
    ("expected", "computed", "place"),
    [
        ({"x": 0.3}, {"x": 0.3 + 1e-11}, "x"),
        ({"x": True}, {"x": 1}, "x"),
        ({"x": None}, {"x": 0}, "x"),
        ({"x": {"y": 1}}, {"x": {"y": 1, "z": 2}}, "x.z"),
        ({"x": [1, 2]}, {"x": [1, 3]}, "x[1]"),
        ({"x": [1]}, {"x": [1, 2]}, "x"),
        ({"x": None}, {}, "x"),
    ],
)
def test_a_difference_is_named_by_its_place(
    expected: dict[str, object], computed: dict[str, object], place: str
) -> None:
    (sentence,) = case_differences(expected, computed)

    assert sentence.startswith(f"{place}: expected ")
