import pytest

from rubricem_agent.evals.parity.drb_fact import deduplicate, recorded_validation
from rubricem_agent.evals.scoring_error import ScoringError

ONE = '[{"idx": 1, "result": "supported"}]'


@pytest.mark.parametrize(("reference", "language", "article"), [(None, "en", 1), ("p", "fr", 1), ("p", "en", 0)])
def test_without_page_language_or_article_there_is_no_call(reference: str | None, language: str, article: int) -> None:
    result = recorded_validation(
        ("f",), reference=reference, judge_replies=(ONE,), language=language, article_id=article
    )

    assert result == {"validate_res": [], "has_error": True, "judge_calls": 0}


@pytest.mark.parametrize("reply", ["[]", "null", "[0, 1]", "[1, 2, 3, 1]", "hm"])
def test_all_facts_are_kept_where_the_judges_list_is_no_use(reply: str) -> None:
    assert deduplicate([("u", ["x", "y", "z"])], replies=[reply])[0] == {"u": ["x", "y", "z"]}


def test_a_single_fact_needs_no_call_and_named_facts_are_kept_repeats_and_negatives_included() -> None:
    kept = deduplicate([("u", ["x", "y", "z"]), ("v", ["w"])], replies=["[2, 2, -1]"])

    # -1 is list position -2, the middle one.
    assert kept == ({"u": ["y", "y", "y"], "v": ["w"]}, 1)


@pytest.mark.parametrize(("reply", "official"), [("[9]", "IndexError"), ('["1"]', "TypeError"), ("5", "TypeError")])
def test_a_list_that_cannot_be_followed_raises_as_the_official_access_does(reply: str, official: str) -> None:
    with pytest.raises(ScoringError) as raised:
        deduplicate([("u", ["x", "y"])], replies=[reply])

    assert (raised.value.official, raised.value.judge_calls) == (official, 1)
