"""The agent's rules: the scaffold in full, an example that keeps them, and what stands in the user message."""

import re

import pytest

from rubricem_agent.prompting import PromptStyle, agent_prompt
from rubricem_env.domain.trajectory import AnswerFormat, Origin, Query, Segment, Trajectory
from rubricem_env.scaffold.grammar import GRAMMAR, ValidationMode
from rubricem_env.scaffold.reading import read_trajectory

TOOLS = ("google_search", "snippet_search")


def test_every_tag_of_the_scaffold_is_explained():
    system = agent_prompt(TOOLS).system
    assert [tag.name for tag in GRAMMAR if f"<{tag.name}" not in system] == []


def test_the_worked_example_breaks_no_rule():
    system = agent_prompt(TOOLS).system
    example = system[system.index("Your first turn:") : system.index("# Rules without exception")]
    parts = re.split(r"Your \w+ turn:|The tool answers:", example)[1:]
    origins = (Origin.POLICY, Origin.TOOL)
    segments = tuple(Segment(origin=origins[place % 2], text=part.strip()) for place, part in enumerate(parts))
    reading = read_trajectory(Trajectory(question="q", segments=segments))
    assert reading.violations == ()
    assert (reading.is_complete, reading.citations.known) == (True, ("S_2", "S_1"))
    assert reading.rejects(ValidationMode.STRICT) == ()


def test_the_comparison_has_the_same_tools_and_none_of_the_stages():
    react = agent_prompt(TOOLS, style=PromptStyle.REACT).system
    tools = re.search(r"# Tools\n\n(.*?)\n\n", agent_prompt(TOOLS).system, re.DOTALL)[1]
    assert tools in react
    assert not re.search("structured_plan|state_evaluation|<review>|rubric", react)


@pytest.mark.parametrize(("answer_format", "asks"), [("exact", r"\boxed{"), ("short", "paragraph"), ("long", "report")])
def test_the_form_is_asked_for_after_the_question(answer_format, asks):
    query = Query(question="How wide?", answer_format=AnswerFormat(answer_format))
    question, form = agent_prompt(TOOLS).opening(query).user.split("\n\n")
    assert (question, asks in form, "<answer>" in form) == ("How wide?", True, True)


def test_references_stand_before_the_question_and_leave_no_trace_where_there_are_none():
    query = Query(question="How wide?")
    prompt = agent_prompt(TOOLS)
    with_block = prompt.opening(query, references="<reference_examples>r</reference_examples>").user
    assert with_block == "<reference_examples>r</reference_examples>\n\n" + prompt.opening(query).user


def test_the_hash_changes_with_rules_and_tools():
    hashes = {agent_prompt(TOOLS).hash, agent_prompt(TOOLS[:1]).hash, agent_prompt(TOOLS, style=PromptStyle.REACT).hash}
    assert len(hashes) == 3


def test_optional_parameters_are_told_and_unknown_tools_are_named():
    system = agent_prompt(("snippet_search", "weather")).system
    assert "- fieldsOfStudy: " in system
    assert '- weather. Call it so: <call_tool name="weather">query</call_tool>' in system
