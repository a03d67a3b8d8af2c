"""Calls as policies write them, and what becomes of them."""

import pytest
from hypothesis import given, strategies as st

from rubricem_env.domain.trajectory import ToolCall, ToolResult, ToolStatus
from rubricem_env.testing.episodes import ScriptedTool
from rubricem_env.tools.base import LocalToolbox
from rubricem_env.tools.repair import find_tool, repair_call
from rubricem_env.tools.spec import FETCH_PAGE_SPEC, GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC, spec_from_schema

SPECS = (GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC, FETCH_PAGE_SPEC)


def call(name="google_search", query="q", **parameters) -> ToolCall:
    return ToolCall(name=name, query=query, parameters=tuple(sorted(parameters.items())))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("google_search", "google_search"),
        ("google_web_search", "google_search"),
        ("Google-Search", "google_search"),
        ("googel_search", "google_search"),
        ("Scholar_Search", "snippet_search"),
        ("snippet_serch", "snippet_search"),
        ("snippetSearch", "snippet_search"),
        ("semantic_scholar_search", "snippet_search"),
        ("open_url", "fetch_page"),
    ],
)
def test_a_near_miss_is_read_as_the_tool_that_it_means(written, meant):
    assert find_tool(written, SPECS).name == meant


@pytest.mark.parametrize("written", ["bing", "python", "search", "", "x" * 5000, "answer"])
def test_another_name_is_an_error_that_lists_the_tools(written):
    result = repair_call(call(written), SPECS)
    assert result.status is ToolStatus.ERROR
    assert "the tools are google_search, snippet_search, fetch_page" in result.message


async def test_a_repair_is_recorded_with_the_written_name_and_a_call_in_good_form_is_not():
    toolbox = LocalToolbox(ScriptedTool(spec=SNIPPET_SEARCH_SPEC))
    result = await toolbox.call(call("Scholar_Search", numresults="3", field="Medicine"))
    assert result.executed.written_name == "Scholar_Search"
    assert result.executed.parameters == (("fieldsofstudy", "Medicine"), ("limit", "3"))
    assert (await toolbox.call(call("snippet_search", limit="3"))).executed is None


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"limit": "0"}, "limit is '0'; it is a whole number from 1 to 10."),
        ({"limit": "ten"}, "limit is 'ten'; it is a whole number from 1 to 10."),
        ({"limit": "9" * 5000}, "limit is '999999999999999999999999999999'; it is a whole number from 1 to 10."),
        ({"year": "soon"}, "year is 'soon'; write a year or a range, such as 2020, 2018-2022, 2020- or -2015."),
        (
            {"colour": "red"},
            "snippet_search has no parameter 'colour'; its parameters are limit, year, fieldsOfStudy. "
            "Write the call without it.",
        ),
    ],
)
def test_a_wrong_parameter_gives_one_sentence(parameters, sentence):
    assert repair_call(call("snippet_search", **parameters), SPECS).message == sentence


def test_a_query_of_100_kB_is_an_error_with_its_size():
    message = repair_call(call(query="x" * 100_000), SPECS).message
    assert message == "the query has 100,000 characters; google_search takes up to 2,000. Shorten it."


def test_an_empty_parameter_is_none():
    assert repair_call(call("snippet_search", year=" "), SPECS).parameters == ()


def test_a_foreign_tool_takes_its_first_required_text_as_the_query():
    schema = {
        "type": "object",
        "properties": {"mode": {"type": "string"}, "zone": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["zone"],
    }
    spec = spec_from_schema("get_time", "", schema)
    assert spec.query_name == "zone"
    assert spec.input_schema() == schema


def test_a_foreign_tool_without_properties_takes_no_query():
    repaired = repair_call(call("now", ""), (spec_from_schema("now", "", {"type": "object"}),))
    assert isinstance(repaired, ToolCall)


@given(
    st.text(max_size=80), st.text(max_size=80), st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=4)
)
def test_any_call_becomes_a_call_or_one_sentence(name, query, parameters):
    written = ToolCall(name=name, query=query, parameters=tuple(sorted(parameters.items())))
    outcome = repair_call(written, SPECS)
    if isinstance(outcome, ToolResult):
        assert outcome.status is ToolStatus.ERROR
        assert outcome.message
    else:
        # Repair is idempotent: what it lets through it lets through unchanged.
        assert repair_call(outcome, SPECS) == outcome
