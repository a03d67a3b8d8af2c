"""Calls that repeat an earlier one."""

from rubricem_env.domain.trajectory import ToolCall
from rubricem_records.rollouts.repeated_calls import count_repeats


def test_a_call_repeats_another_whatever_its_case_and_spacing():
    calls = [
        ToolCall(name="google_search", query="Tall Fox width"),
        ToolCall(name="google_search", query="tall  fox width"),
        ToolCall(name="snippet_search", query="tall fox width"),
        ToolCall(name="google_search", query="tall fox length"),
    ]

    assert count_repeats(calls) == 1
    assert count_repeats([]) == 0
