import pytest
from pydantic import JsonValue

from rubricem_agent.evals.base import ScoringError
from rubricem_agent.evals.extraction import convert_citations, extract_answer, format_record

SNIPPET = "<snippet id=s-0>\nTitle: T\nURL: http://a\nSnippet: body\n</snippet>"


@pytest.mark.parametrize(
    ("generated", "answer"),
    [
        ("t</think> x <answer> A </answer> y", "A"),
        ("a</think>b</think>c", "bc"),
        ("<answer>one<answer>two</answer>", "one"),
        ("<answer>unclosed ", "unclosed"),
        ("a long report with \\boxed{x^{2}} in it", "x^{2"),
        ("\boxed{B}", "B"),
        (" untouched ", " untouched "),
    ],
)
def test_the_answer_is_cut_out_as_the_predecessor_did(generated: str, answer: str) -> None:
    assert extract_answer(generated) == answer


def test_cited_claims_are_marked_and_gathered_by_id() -> None:
    cited = convert_citations('A <cite id="x,y">one</cite> <cite id="x">two</cite>')

    assert cited.text == "A . one [x] [y]. . two [x]."
    assert cited.claims_by_id == {"x": ["one", "two"], "y": ["one"]}


@pytest.mark.parametrize("text", ['<cite ids="x">a</cite>', '<cite id="">a</cite>', '<cite id="x">a <b>c</b></cite>'])
def test_other_cite_tags_stay_as_they_are(text: str) -> None:
    assert convert_citations(text) == (text, [], {})


def test_a_record_gets_numbered_references_and_pre_scraped_facts() -> None:
    record = format_record(
        {
            "id": 1,
            "problem": "P",
            "final_response": '<cite id="s-0">fact</cite>',
            "full_traces": {"tool_calls": [{"generated_text": SNIPPET}]},
        }
    )

    assert record.article == ". fact [1].\n\n References: [1] http://a"
    assert record.citations_deduped == {"http://a": {"facts": ["fact"], "url_content": "T\n\nbody"}}


def test_results_of_a_call_are_numbered_and_a_chained_tools_raw_output_is_the_fallback() -> None:
    listed = "Title: one\nURL: http://a\nSnippet: x\nTitle: two\nSnippet: y"
    call: JsonValue = {"call_id": "c", "output": "", "raw_output": {"tool_outputs": [{"output": listed}]}}

    record = format_record(
        {
            "id": 1,
            "problem": "P",
            "pred_answer": '<cite id="c-1">fact</cite>',
            "full_traces": {"tool_calls": [call]},
        }
    )

    # The second result has no url, so the reference is empty.
    assert record.citations == [{"fact": "fact", "ref_indx": "c-1", "url": ""}]


def test_an_unknown_id_is_looked_for_inside_the_urls_and_else_its_mark_is_removed() -> None:
    answer = '<cite id="http://a">u</cite> <cite id="zz">v</cite>'
    traces: JsonValue = {"tool_calls": [{"generated_text": SNIPPET}]}

    record = format_record({"example_id": 1, "problem": "P", "final_response": answer, "full_traces": traces})

    assert record.article == ". u [1]. . v .\n\n References: [1] http://a"


def test_a_chinese_article_gets_a_chinese_heading() -> None:
    assert "参考文献" in format_record({"id": 1, "problem": "P", "final_response": "结论"}).article


@pytest.mark.parametrize("record", [{}, {"id": 1}, {"id": 1, "problem": "P"}])
def test_a_record_without_its_fields_raises_a_key_error(record: dict[str, JsonValue]) -> None:
    with pytest.raises(ScoringError) as raised:
        format_record(record)

    assert raised.value.official == "KeyError"
