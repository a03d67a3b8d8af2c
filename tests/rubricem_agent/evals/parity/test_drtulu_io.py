import pytest
from pydantic import JsonValue

from rubricem_agent.evals.parity.drtulu_io import format_record
from rubricem_agent.evals.scoring_error import ScoringError

SNIPPET = "<snippet id=s-0>\nTitle: T\nURL: http://a\nSnippet: body\n</snippet>"


def test_results_of_a_call_are_numbered_and_a_chained_tools_raw_output_is_the_fallback() -> None:
    listed = "Title: one\nURL: http://a\nSnippet: x\nTitle: two\nSnippet: y"
    call: JsonValue = {"call_id": "c", "output": "", "raw_output": {"tool_outputs": [{"output": listed}]}}

    record = format_record(
        {"id": 1, "problem": "P", "pred_answer": '<cite id="c-1">fact</cite>', "full_traces": {"tool_calls": [call]}}
    )

    # The second result has no url, so the reference is empty.
    assert record["citations"] == [{"fact": "fact", "ref_indx": "c-1", "url": ""}]


def test_an_unknown_id_is_looked_for_inside_the_urls_and_else_its_mark_is_removed() -> None:
    answer = '<cite id="http://a">u</cite> <cite id="zz">v</cite>'
    traces: JsonValue = {"tool_calls": [{"generated_text": SNIPPET}]}

    record = format_record({"example_id": 1, "problem": "P", "final_response": answer, "full_traces": traces})

    assert record["article"] == ". u [1]. . v .\n\n References: [1] http://a"


def test_a_chinese_article_gets_a_chinese_heading() -> None:
    assert "参考文献" in format_record({"id": 1, "problem": "P", "final_response": "结论"})["article"]


@pytest.mark.parametrize("record", [{}, {"id": 1}, {"id": 1, "problem": "P"}])
def test_a_record_without_its_fields_raises_a_key_error(record: dict[str, JsonValue]) -> None:
    with pytest.raises(ScoringError) as raised:
        format_record(record)

    assert raised.value.official == "KeyError"
