"""Prompt files, and the agent's opening."""

import hashlib
import re
from importlib import resources

import pytest
from hypothesis import given, strategies as st

from rubricem_agent.memory.inject import Injector
from rubricem_agent.prompting import (
    AGENT_PROMPTS,
    SHIPPED_PROMPTS,
    agent_prompt,
    fill,
    prompt_from_text,
    read_agent_prompts,
    read_prompt,
)
from rubricem_agent.reflection.candidates import reflection_prompt
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import AnswerFormat, Origin, Query, Segment, Trajectory
from rubricem_env.scaffold.grammar import GRAMMAR
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_records.bank.bank_items import BankItem, Retrieved
from tests.fakes import make_reflection


def test_a_prompt_s_hash_is_that_of_its_file():
    file = resources.files("rubricem_agent").joinpath("prompts", "reflection.md")
    assert read_prompt("reflection").hash == hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def test_another_wording_has_another_hash():
    assert prompt_from_text("mine", "a").hash != prompt_from_text("mine", "b").hash


def test_an_unknown_prompt_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"no prompt 'nonesuch'; the prompts are: .*inject_cross, inject_within"):
        read_prompt("nonesuch")


@pytest.mark.parametrize("name", ["../library", "/etc/passwd", ""])
def test_a_name_that_is_a_path_is_no_prompt(name):
    with pytest.raises(ConfigError, match="there is no prompt"):
        read_prompt(name)


def test_sections_are_taken_apart_and_stripped():
    prompt = prompt_from_text("mine", "<!-- section: one -->\n a\n\n<!-- section: two -->\nb\n")
    assert (prompt.section("one"), prompt.section("two")) == ("a", "b")


def test_an_unknown_section_is_refused_with_the_known_ones():
    with pytest.raises(
        ConfigError, match="'reflection' has no section 'three'; it has: system, facts_cross, facts_within, user"
    ):
        read_prompt("reflection").section("three")


@given(st.text(), st.text())
def test_what_is_filled_in_is_never_filled_again(first, second):
    filled = fill("{{a}} and {{b}}", {"a": "{{b}}" + first, "b": second})
    assert filled == "{{b}}" + first + " and " + second


@pytest.mark.parametrize("parts", [{}, {"a": "1", "b": "2"}, {"b": "1"}])
def test_places_and_parts_must_match(parts):
    with pytest.raises(ConfigError, match="placeholders do not match"):
        fill("{{a}}", parts)


def test_the_reflection_prompt_asks_for_both_blocks_once_in_order():
    system = read_prompt("reflection").section("system")
    tags = ["<reflection_rubrics>", "</reflection_rubrics>", "<reflection_takeaways>", "</reflection_takeaways>"]
    assert [system.count(tag) for tag in tags] == [1, 1, 1, 1]
    assert [system.index(tag) for tag in tags] == sorted(system.index(tag) for tag in tags)


def test_the_reflection_prompt_has_one_wording_for_each_use_of_a_lesson():
    cross, within = reflection_prompt(), reflection_prompt(wording="within")
    assert cross.hash != within.hash
    assert ("do not pass on facts" in cross.section("system").lower(), "{{" in cross.section("system")) == (True, False)
    assert "which facts the attempt has settled" in within.section("system")
    assert "do not pass on facts" not in within.section("system").lower()


TOOLS = ("google_search", "snippet_search")


def test_every_tag_of_the_scaffold_is_explained():
    system = agent_prompt(TOOLS).system
    assert [name for name in GRAMMAR if f"<{name}" not in system] == []


@pytest.mark.parametrize("ending", ["short", "long"])
def test_the_worked_example_breaks_no_rule_with_either_ending(ending):
    system = agent_prompt(TOOLS).system
    example = system[system.index("Your first turn:") : system.index("# Rules without exception")]
    example, _, report = example.partition("Had the line asked for a long report")
    if ending == "long":
        example = example[: example.index("<answer>")] + report[report.index("<answer>") :]
        assert "\n## " in example
    parts = re.split(r"Your \w+ turn:|The tool answers:", example)[1:]
    origins = (Origin.POLICY, Origin.TOOL)
    segments = tuple(Segment(origin=origins[place % 2], text=part.strip()) for place, part in enumerate(parts))
    parsed = parse_trajectory(Trajectory(question="q", segments=segments))
    assert parsed.violations == ()
    assert (parsed.is_complete, set(parsed.citations.known)) == (True, {"S_2", "S_1"})
    assert parsed.rejections == ()


def test_the_comparison_has_the_same_tools_and_none_of_the_stages():
    react = agent_prompt(TOOLS, style="react").system
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
    hashes = {agent_prompt(TOOLS).hash, agent_prompt(TOOLS[:1]).hash, agent_prompt(TOOLS, style="react").hash}
    assert len(hashes) == 3


def test_optional_parameters_are_told_and_unknown_tools_are_named():
    system = agent_prompt(("snippet_search", "weather")).system
    assert "- fieldsOfStudy: " in system
    assert '- weather. Call it so: <call_tool name="weather">query</call_tool>' in system


@pytest.fixture
def folder(tmp_path):
    """A copy of the shipped prompts of the agent."""
    for name in AGENT_PROMPTS:
        (tmp_path / f"{name}.md").write_text(SHIPPED_PROMPTS[name].text, encoding="utf-8")
    return tmp_path


def test_a_copy_of_our_prompts_is_ours(folder):
    assert read_agent_prompts(folder) == read_agent_prompts(None) == SHIPPED_PROMPTS


def test_an_agent_is_told_what_the_prompts_of_a_folder_say_and_their_hash_is_another(folder):
    (folder / "agent.md").write_text("<!-- section: system -->\nSearch with {{tools}}.\n", encoding="utf-8")
    (folder / "format_long.md").write_text("In full.", encoding="utf-8")
    prompts = read_agent_prompts(folder)
    prompt = agent_prompt(TOOLS, prompts=prompts)
    opening = prompt.opening(Query(question="Why?"))
    assert opening.system.startswith("Search with - google_search")
    assert opening.user == "Why?\n\nIn full."
    assert prompt.hash != agent_prompt(TOOLS).hash
    # A model with a system prompt of its own gets the folder's forms too.
    assert agent_prompt(TOOLS, system="Go.", prompts=prompts).opening(Query(question="Why?")).user.endswith("In full.")


def test_lessons_and_reflections_are_worded_by_the_folder_too(folder):
    block = "<!-- section: block -->\nBefore: {{examples}}\n<!-- section: example -->\n{{rubrics}} {{takeaways}}\n"
    (folder / "inject_within.md").write_text(block, encoding="utf-8")
    reflect = (folder / "reflection.md").read_text(encoding="utf-8").replace("You are a strict editor", "You edit")
    (folder / "reflection.md").write_text(reflect, encoding="utf-8")
    prompts = read_agent_prompts(folder)
    item = BankItem(id=1, revision=1, reflection=make_reflection("Why?", takeaways="say what is open"))
    shown, _ = Injector(count_tokens=len, prompts=prompts).render([Retrieved(item, 1.0)], "within")
    assert shown == f"Before: {item.reflection.rubrics} say what is open"
    assert reflection_prompt(prompts=prompts).section("system").startswith("You edit")


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("react", None, r"has no react\.md; it needs one of each of ours\. Copy what is missing from /"),
        ("agent", "Search with {{tools}}.", r"agent\.md has these sections: none; it needs each of ours once: system"),
        (
            "agent",
            "<!-- section: system -->\nSearch.",
            r"agent\.md, section system, lacks the placeholder \{\{tools\}\}",
        ),
        ("format_long", "In {{words}}.", r"format_long\.md has the unknown placeholder \{\{words\}\}; .* none"),
        (
            "inject_cross",
            "<!-- section: block -->\n{{examples}}\n<!-- section: example -->\n{{rubrics}}{{takeaways}}\n",
            r"inject_cross\.md, section example, lacks the placeholder \{\{number\}\}, \{\{question\}\}",
        ),
    ],
)
def test_a_folder_that_misses_a_prompt_or_a_placeholder_is_refused_in_one_sentence(folder, name, text, sentence):
    (folder / f"{name}.md").unlink()
    if text is not None:
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=sentence):
        read_agent_prompts(folder)
