"""The name of a judge, as a manifest records it."""

import pytest

from rubricem_records.evaluations.manifest import judge_model


@pytest.mark.parametrize(
    ("judge", "model"),
    [
        ("openai:gpt-4.1@https://host", "gpt-4.1"),
        ("gemini:gemini-2.5-pro", "gemini-2.5-pro"),
        ("responses:gpt-4.1", "gpt-4.1"),
        ("anthropic:claude-opus-4", "claude-opus-4"),
        ("none", "none"),
    ],
)
def test_every_backend_is_left_out_of_the_name_of_a_judges_model(judge, model):
    assert judge_model(judge) == model
