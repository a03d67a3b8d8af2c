"""Counts the tool calls of an attempt that repeat an earlier one."""

from collections.abc import Sequence

from rubricem_env.domain.trajectory import ToolCall


def count_repeats(calls: Sequence[ToolCall]) -> int:
    """Calls that ask the same thing as an earlier one."""
    return len(calls) - len({call.identity for call in calls})
