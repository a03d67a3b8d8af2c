import pytest
from pydantic import JsonValue

from rubricem_agent.evals.benchmarks.drb_fact import parse_validation, score_records
from rubricem_agent.evals.reply_parsing import Unparsed
from rubricem_agent.evals.scoring_error import ScoringError

ONE = '[{"idx": 1, "result": "supported"}]'


def test_a_record_without_a_field_names_the_key_error() -> None:
    with pytest.raises(ScoringError) as raised:
        score_records([{}])

    assert raised.value.official == "KeyError"


@pytest.mark.parametrize("reply", [ONE, '{"idx": 1}', "5", '[{"idx": "1"}, {"idx": 2}]', '["a", "b"]'])
def test_a_wrong_count_or_shape_is_asked_again(reply: str) -> None:
    assert isinstance(parse_validation(reply, num_facts=2), Unparsed)


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
