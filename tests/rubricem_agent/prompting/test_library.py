"""Prompt files: found by name, known by hash, filled in one pass."""

import hashlib
from importlib import resources

import pytest
from hypothesis import given, strategies as st

from rubricem_agent.prompting import fill, prompt_from_text, read_prompt
from rubricem_env.domain.errors import ConfigError


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
    with pytest.raises(ConfigError, match="'reflection' has no section 'three'; it has: system, user"):
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
