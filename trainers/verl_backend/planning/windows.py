"""The windows of attempts whose context is folded: how many they are, and what it costs to read their prompts again."""

from collections.abc import Container, Mapping
from typing import NamedTuple

from rubricem_env.env.episode import EpisodeLimits

from .ranges import RANGES, Range
from .run_shape import Assumptions, RunShape

_BY_CALLS = ("written_tokens", "searches", "longest_attempt")
"""What is assumed of an attempt of the default number of calls."""


class Windows(NamedTuple):
    """Of an average attempt; one where nothing is folded."""

    number: float
    tokens: float
    """Of one window."""
    again: float
    """Tokens of the prompts of all later windows, which are read and trained on again."""

    @property
    def all_tokens(self) -> float:
        return self.number * self.tokens


def plan_windows(shape: RunShape, assumed: Assumptions) -> Windows:
    """A context grows to `fold_at`, and is folded to `fold_to` each time."""
    whole, context = assumed.sequence, shape.settings.context
    if context.fold_at is None or whole <= context.fold_at:
        return Windows(1.0, whole, 0.0)
    number = 1.0 + (whole - context.fold_at) / (context.fold_at - context.fold_to)
    again = (number - 1.0) * context.fold_to
    return Windows(number, (whole + again) / number, again)


def assume_calls(assumed: Assumptions, shape: RunShape, given: Container[str] = ()) -> Assumptions:
    """The assumptions for attempts of as many calls as a folded context allows.

    Those that a user has given stay.
    """
    times = _times(shape)
    changed = {name: getattr(assumed, name) * times for name in _BY_CALLS if name not in given}
    return assumed.model_copy(update=changed) if times != 1.0 else assumed


def assumed_ranges(shape: RunShape) -> Mapping[str, Range]:
    """The range of each assumption for attempts of so many calls."""
    times = _times(shape)
    by_calls = {name: RANGES[name] for name in _BY_CALLS if times != 1.0}
    return {
        **RANGES,
        **{
            name: Range(ends.cheap * times, ends.dear * times, f"{times:g} times: {ends.source}")
            for name, ends in by_calls.items()
        },
    }


def _times(shape: RunShape) -> float:
    """As many times the calls as an attempt has by default."""
    default: int = EpisodeLimits.model_fields["max_calls"].default
    return 1.0 if shape.settings.context.fold_at is None else shape.settings.limits.max_calls / default
