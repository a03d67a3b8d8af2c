"""Recognises a run that is collapsing by its log.

Levels are means over a few steps, compared with the run's own beginning, so that no threshold depends on the
policy or the task. Users of neighbouring systems report runs that die unnoticed between steps 160 and 600.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from rubricem_env.domain.settings import Settings
from rubricem_records.runs.log_lines import NumberPath, StepLine, read_number

Positive = Annotated[float, Field(gt=0)]

Share = Annotated[float, Field(ge=0, le=1)]


class WatchSettings(Settings):
    """When a run counts as lost. A threshold of None is not watched."""

    window: Annotated[int, Field(ge=1)] = 6
    """The number of steps in an average. A run's first average is the level that it is compared with."""
    shortest_answer: Share | None = 0.25
    """The least mean length of answers, as a share of the run's first average."""
    longest_answer: Positive | None = 4.0
    """The greatest mean length of answers, as a multiple of the run's first average."""
    repeated_calls: Share | None = 0.6
    """The greatest share of searches that repeat one of the same attempt."""
    lowest_entropy: Share | None = 0.05
    """The least entropy, as a share of the run's first average."""
    largest_gradient: Positive | None = 20.0
    """The greatest gradient norm before clipping, as a multiple of the run's first average."""
    largest_kl: Positive | None = 2.0
    """The greatest KL divergence from the reference, in nats a token."""
    fewest_valid: Share | None = 0.5
    """The least share of attempts that strict mode accepts, as a share of the run's first average."""


class CollapseSign(NamedTuple):
    """A number of the log that must stay within a threshold."""

    threshold: str
    """The threshold's name in `WatchSettings`."""
    what: str
    """What the number says, as a warning begins."""
    number: NumberPath
    direction: Literal["floor", "limit"]
    is_relative: bool
    """Whether the threshold is a multiple of the number's first level."""


_SIGNS: Sequence[CollapseSign] = (
    CollapseSign("shortest_answer", "answers are shrinking: words", ("rollout_stats", "answer_words"), "floor", True),
    CollapseSign("longest_answer", "answers are exploding: words", ("rollout_stats", "answer_words"), "limit", True),
    CollapseSign(
        "repeated_calls", "searches repeat each other: share", ("rollout_stats", "repeated_calls"), "limit", False
    ),
    CollapseSign("lowest_entropy", "the entropy has collapsed: nats a token", ("task", "entropy"), "floor", True),
    CollapseSign("largest_gradient", "the gradient is exploding: norm", ("task", "grad_norm"), "limit", True),
    CollapseSign("largest_kl", "the policy has left its reference: KL", ("task", "kl"), "limit", False),
    CollapseSign(
        "fewest_valid", "the scaffold is falling apart: valid share", ("rollout_stats", "valid"), "floor", True
    ),
)


def find_collapse(lines: Sequence[StepLine], settings: WatchSettings) -> str | None:
    """The first sign of collapse in the latest steps as a sentence; None for a healthy run."""
    return next((warning for sign in _SIGNS if (warning := _check_sign(sign, lines, settings))), None)


def _check_sign(sign: CollapseSign, lines: Sequence[StepLine], settings: WatchSettings) -> str | None:
    threshold: float | None = getattr(settings, sign.threshold)
    window = settings.window
    values = [value for line in lines if (value := read_number(line, sign.number)) is not None]
    if threshold is None or len(values) < 2 * window:
        return None
    first = sum(values[:window]) / window
    present = sum(values[-window:]) / window
    bound = threshold * first if sign.is_relative else threshold
    is_beyond = present < bound if sign.direction == "floor" else present > bound
    # A level of 0 at the start can neither fall nor be a measure.
    if not is_beyond or (sign.is_relative and first <= 0):
        return None
    side = "at least" if sign.direction == "floor" else "at most"
    return (
        f"step {lines[-1].step}: {sign.what} {present:.3g} over the last {window} steps, {first:.3g} over the first, "
        f"and {side} {bound:.3g} is allowed (watch.{sign.threshold} = {threshold:g}). Start again in another folder "
        "with a lower learning_rate or a higher loss.kl_coefficient; to continue anyway, add "
        f"watch='{{{sign.threshold}: null}}' to the same command."
    )
