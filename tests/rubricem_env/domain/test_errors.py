"""The tree of errors, and the one place that turns foreign ones into ours."""

import asyncio

import pytest

from rubricem_env.domain.errors import (
    ConfigError,
    JudgeError,
    MissingExtraError,
    ToolError,
    UsageError,
    boundary,
    nearest_name,
    parse_assignment,
    suggest_name,
)


def test_a_foreign_failure_becomes_ours_and_names_what_was_being_done():
    with (
        pytest.raises(JudgeError, match="could not score stages: KeyError: 'x'") as caught,
        boundary(JudgeError, "score stages"),
    ):
        raise KeyError("x")
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_failure_without_a_word_still_makes_a_sentence():
    with pytest.raises(ToolError, match="could not fetch: TimeoutError: no detail given"), boundary(ToolError, "fetch"):
        raise TimeoutError


def test_our_own_errors_pass_a_boundary_unchanged():
    error = UsageError("the key is wrong")
    with pytest.raises(UsageError) as caught, boundary(ToolError, "fetch"):
        raise error
    assert caught.value is error


def test_cancellation_passes_a_boundary():
    with pytest.raises(asyncio.CancelledError), boundary(ToolError, "fetch"):
        raise asyncio.CancelledError


def test_a_missing_package_says_how_to_install_it():
    message = str(MissingExtraError("chromadb", "bank", "the Chroma store"))
    assert message == "the Chroma store needs chromadb, which is not installed. Run: pip install 'rubricem[bank]'"


def test_an_unknown_name_is_answered_with_the_most_similar_known_one():
    assert nearest_name("windw", ["window", "steps"]) == "window"
    assert suggest_name("windw", ["window", "steps"]) == "did you mean 'window'?"


def test_a_name_that_resembles_none_is_answered_with_all_of_them():
    assert nearest_name("zzz", ["window", "steps"]) is None
    assert suggest_name("zzz", ["window", "steps"]) == "the keys are window, steps."


def test_an_assignment_keeps_every_later_equals_sign_in_its_value():
    assert parse_assignment(" a =b=c", example="a=1") == ("a", "b=c")


@pytest.mark.parametrize("text", ["a", "=1"])
def test_an_assignment_without_a_key_or_a_value_is_refused_with_an_example(text):
    with pytest.raises(ConfigError, match=f"'{text}' is not a setting; write KEY=VALUE, such as steps=3."):
        parse_assignment(text, example="steps=3")
