import pytest
from pydantic import JsonValue

from rubricem_agent.evals.base import ScoringError, Unparsed
from rubricem_agent.evals.benchmarks.drb_fact import deduplicate, parse_validation, recorded_validation, score_records

ONE = '[{"idx": 1, "result": "supported"}]'


def test_a_record_without_a_field_names_the_key_error() -> None:
    with pytest.raises(ScoringError) as raised:
        score_records([{}])

    assert raised.value.official == "KeyError"


@pytest.mark.parametrize(("reference", "language", "article"), [(None, "en", 1), ("p", "fr", 1), ("p", "en", 0)])
def test_without_page_language_or_article_there_is_no_call(reference: str | None, language: str, article: int) -> None:
    result = recorded_validation(
        ("f",), reference=reference, judge_replies=(ONE,), language=language, article_id=article
    )

    assert result == {"validate_res": [], "has_error": True, "judge_calls": 0}


@pytest.mark.parametrize("reply", [ONE, '{"idx": 1}', "5", '[{"idx": "1"}, {"idx": 2}]', '["a", "b"]'])
def test_a_wrong_count_or_shape_is_asked_again(reply: str) -> None:
    assert isinstance(parse_validation(reply, num_facts=2), Unparsed)


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


@pytest.mark.parametrize(
    ("pages", "official"),
    [
        (None, "AttributeError"),
        ({"u": 3}, "TypeError"),
        ({"u": {"validate_error": None, "validate_res": 1}}, "TypeError"),
    ],
)
def test_a_record_of_another_shape_raises_as_the_official_access_does(pages: JsonValue, official: str) -> None:
    with pytest.raises(ScoringError) as raised:
        score_records([{"citations": ["x"], "citations_deduped": pages}])

    assert raised.value.official == official
