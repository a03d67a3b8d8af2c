"""Collapse: the signs by which a run is lost, looked for in the lines of its log, and the sentence that stops it.

Users of neighbouring systems report runs that die unnoticed between steps 160 and 600. Levels are means over a few
steps and are compared with the run's own beginning, so that no threshold depends on the policy or the task.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from rubricem_agent.learn.metrics_log import StepLine
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import RubricEMError

Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class CollapseError(RubricEMError):
    """The run is lost and has been stopped. Its log, its checkpoints and its bank are as the last step left them."""


class WatchSettings(Frozen):
    """When a run counts as lost. A threshold of None is not watched."""

    window: Annotated[int, Field(ge=1)] = 6
    """Steps averaged: for the first level and, beyond those, for the present one. 6 is a whole turn of the curriculum."""
    shortest_answer: Share | None = 0.25
    """Words of an answer, as a share of their first level."""
    longest_answer: Positive | None = 4.0
    """The same, as a multiple."""
    repeated_calls: Share | None = 0.6
    """The share of searches that repeat one of the same attempt."""
    lowest_entropy: Share | None = 0.05
    """Nats a token, as a share of their first level."""
    largest_gradient: Positive | None = 20.0
    """The norm before clipping, as a multiple of its first level."""
    largest_kl: Positive | None = 2.0
    """From the reference, in nats a token."""
    fewest_valid: Share | None = 0.5
    """Attempts that strict mode accepts, as a share of their first level."""


class Sign(NamedTuple):
    """One thing to watch: how to read it off a line, and when it is beyond its threshold."""

    key: str
    """Of its threshold in the settings."""
    what: str
    limit: float | None
    read: Callable[[StepLine], float | None]
    is_floor: bool = False
    is_relative: bool = True


def find_collapse(lines: Sequence[StepLine], settings: WatchSettings) -> str | None:
    """The first sign of collapse in the latest steps as a sentence, or None for a run in good health."""
    return next((found for sign in _signs(settings) if (found := _look(sign, lines, settings.window))), None)


def _signs(settings: WatchSettings) -> Iterator[Sign]:
    yield Sign("shortest_answer", "answers are shrinking: words", settings.shortest_answer, _words, is_floor=True)
    yield Sign("longest_answer", "answers are exploding: words", settings.longest_answer, _words)
    yield Sign(
        "repeated_calls", "searches repeat each other: share", settings.repeated_calls, _repeats, is_relative=False
    )
    yield Sign(
        "lowest_entropy", "the entropy has collapsed: nats a token", settings.lowest_entropy, _entropy, is_floor=True
    )
    yield Sign("largest_gradient", "the gradient is exploding: norm", settings.largest_gradient, _gradient)
    yield Sign("largest_kl", "the policy has left its reference: KL", settings.largest_kl, _kl, is_relative=False)
    yield Sign(
        "fewest_valid", "the scaffold is falling apart: valid share", settings.fewest_valid, _valid, is_floor=True
    )


def _look(sign: Sign, lines: Sequence[StepLine], window: int) -> str | None:
    values = [value for line in lines if (value := sign.read(line)) is not None]
    if sign.limit is None or len(values) < 2 * window:
        return None
    first, present = _mean(values[:window]), _mean(values[-window:])
    bound = sign.limit * first if sign.is_relative else sign.limit
    is_beyond = present < bound if sign.is_floor else present > bound
    # A level that was 0 from the start can neither fall nor be a measure.
    if not is_beyond or (sign.is_relative and first <= 0):
        return None
    side = "at least" if sign.is_floor else "at most"
    return (
        f"step {lines[-1].step}: {sign.what} {present:.3g} over the last {window} steps, {first:.3g} over the first, "
        f"and {side} {bound:.3g} is allowed (watch.{sign.key} = {sign.limit:g}). Start again in another folder with a "
        "lower learning_rate or a higher loss.kl_coefficient; to go on all the same, add "
        f"watch='{{{sign.key}: null}}' to the same command."
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _words(line: StepLine) -> float | None:
    return None if line.habits is None else line.habits.answer_words


def _repeats(line: StepLine) -> float | None:
    return None if line.habits is None else line.habits.repeated_calls


def _valid(line: StepLine) -> float | None:
    return None if line.habits is None else line.habits.valid


def _entropy(line: StepLine) -> float | None:
    return None if line.task is None else line.task.entropy


def _gradient(line: StepLine) -> float | None:
    return None if line.task is None else line.task.grad_norm


def _kl(line: StepLine) -> float | None:
    return None if line.task is None else line.task.kl
