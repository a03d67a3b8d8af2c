"""The tree of errors, and the one place that turns foreign ones into ours."""

import asyncio

import pytest

from rubricem_env.domain.errors import (
    BoundaryError,
    JudgeError,
    MissingExtraError,
    RubricEMError,
    ToolError,
    UsageError,
    boundary,
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


def test_a_callers_mistake_is_a_value_error_and_the_worlds_failure_is_not():
    assert issubclass(UsageError, ValueError)
    assert not issubclass(BoundaryError, ValueError)
    assert issubclass(BoundaryError, RubricEMError)


def test_a_missing_package_says_how_to_install_it():
    message = str(MissingExtraError("chromadb", "bank", "the Chroma store"))
    assert message == "the Chroma store needs chromadb, which is not installed. Run: pip install 'rubricem[bank]'"
