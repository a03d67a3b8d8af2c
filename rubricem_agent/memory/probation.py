"""Probation: a new lesson is shown to a share of attempts until the scores say whether it helps.

Rules cannot tell a hostile lesson in ordinary words. So what a lesson may do is bounded, and its effect is measured:

1. Each lesson on probation is shown to a share of a group's guided attempts, drawn at random for each lesson alone.
2. The scores of attempts that saw it are compared with those of attempts at the same question, in the same step, that
   saw the same other lessons.
3. A normal prior shrinks the difference towards no effect. The lesson is admitted when the interval lies above
   `least_effect`, and quarantined when it lies below 0.

The interval is a posterior one. A look after each group does not distort it, as it would a test of significance.
An admitted lesson is measured too, where some attempts of a group see no lessons; it can still be quarantined.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from rubricem_env.concurrency import open_generator
from rubricem_env.domain.settings import Settings
from rubricem_records.bank.bank_items import BankItem, ItemStatus, LessonEffect

_PRIOR_FREEDOM = 8
"""The degrees of freedom that `noise` counts for, beside those of the measured scores."""
_MOST_QUESTIONS = 64
"""Of a lesson's questions so many keys are stored."""


class ProbationSettings(Settings):
    """How lessons on probation are shown, and when it ends."""

    share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    """The share of a group's guided attempts that see a lesson on probation."""
    at_once: Annotated[int, Field(ge=1)] = 2
    """The most lessons on probation before one question, beside the admitted ones."""
    confidence: Annotated[float, Field(gt=0.5, lt=1.0)] = 0.9
    """Of the interval of the effect."""
    prior_spread: Annotated[float, Field(gt=0.0)] = 0.05
    """The standard deviation of lessons' effects on a score, before anything is known of one. Their mean is 0."""
    noise: Annotated[float, Field(gt=0.0)] = 0.2
    """The standard deviation of the scores of attempts at one question, before any are known."""
    least_effect: Annotated[float, Field(ge=-1.0, le=1.0)] = 0.0
    """A lesson is admitted when its interval lies above this. Below 0 also admits lessons that do little."""
    quorum: Annotated[int, Field(ge=1, le=_MOST_QUESTIONS)] = 3
    """The fewest questions that a lesson was tried on before it is admitted."""
    patience: Annotated[int, Field(ge=1)] | None = None
    """A lesson that so many attempts saw without a decision is quarantined. None: it stays on probation."""


class GuidedScore(NamedTuple):
    """A scored attempt, and the numbers of the items that it saw."""

    items: frozenset[int]
    score: float


def draw_attempts(attempts: Sequence[int], share: float, *, seed: int, item: int) -> frozenset[int]:
    """The attempts that see one lesson on probation: a share of them, rounded at random, drawn evenly."""
    generator = open_generator(seed, "probation", item)
    wanted = share * len(attempts)
    count = math.floor(wanted) + (generator.random() < wanted - math.floor(wanted))
    return frozenset(generator.permutation(list(attempts))[:count].tolist())


def measure_effect(
    item: BankItem, attempts: Iterable[GuidedScore], *, question: str, settings: ProbationSettings
) -> LessonEffect:
    """The item's effect after the attempts of one more group at the question of that key; unchanged if none compare."""
    effect = item.effect
    sides: dict[frozenset[int], tuple[list[float], list[float]]] = {}
    for attempt in attempts:
        without, seen = sides.setdefault(attempt.items - {item.id}, ([], []))
        (seen if item.id in attempt.items else without).append(attempt.score)
    compared = [(without, seen) for without, seen in sides.values() if without and seen]
    if not compared:
        return effect
    weights = [len(seen) * len(without) / (len(seen) + len(without)) for without, seen in compared]
    gains = [float(np.mean(seen) - np.mean(without)) for without, seen in compared]
    squares = sum(float(np.var(side)) * len(side) for pair in compared for side in pair)
    asked = effect.questions if question in effect.questions else (*effect.questions, question)
    totals = {
        "shown": effect.shown + sum(len(seen) for _, seen in compared),
        "unshown": effect.unshown + sum(len(without) for without, _ in compared),
        "questions": asked[:_MOST_QUESTIONS],
        "weight": effect.weight + sum(weights),
        "gain": effect.gain + sum(weight * gain for weight, gain in zip(weights, gains, strict=True)),
        "squares": effect.squares + squares,
        "freedom": effect.freedom + sum(len(side) - 1 for pair in compared for side in pair),
    }
    return _with_interval(LessonEffect.model_validate(totals), settings)


def _with_interval(effect: LessonEffect, settings: ProbationSettings) -> LessonEffect:
    """The posterior mean and interval of an effect with normal prior and normal scores of estimated variance."""
    variance = (settings.noise**2 * _PRIOR_FREEDOM + effect.squares) / (_PRIOR_FREEDOM + effect.freedom)
    precision = effect.weight / variance + 1.0 / settings.prior_spread**2
    mean = effect.gain / variance / precision
    reach = NormalDist().inv_cdf((1.0 + settings.confidence) / 2.0) / math.sqrt(precision)
    return effect.model_copy(update={"mean": mean, "low": mean - reach, "high": mean + reach})


class Decision(NamedTuple):
    """The status that an effect gives an item, and why."""

    status: ItemStatus
    reason: str


def decide(item: BankItem, settings: ProbationSettings) -> Decision | None:
    """What the measured effect changes about an item that is active or on probation; None if nothing."""
    effect = item.effect
    numbers = describe_effect(effect)
    if item.decided_by_person:
        return None
    if effect.high < 0.0:
        return Decision("quarantined", f"it lowers scores: {numbers}")
    if item.status != "probation":
        return None
    if effect.low > settings.least_effect and len(effect.questions) >= settings.quorum:
        return Decision("active", f"admitted: {numbers}")
    if settings.patience is not None and effect.shown >= settings.patience:
        return Decision("quarantined", f"undecided: {numbers}")
    return None


def describe_interval(effect: LessonEffect) -> str:
    """The effect with its interval."""
    return f"{effect.mean:+.3f} [{effect.low:+.3f}, {effect.high:+.3f}]"


def describe_effect(effect: LessonEffect) -> str:
    """The effect with its interval and what it rests on, in one line; "not measured" before any comparison."""
    if not effect.weight:
        return "not measured"
    return (
        f"{describe_interval(effect)} in {effect.shown} attempts that saw it and {effect.unshown} that did not, "
        f"at {len(effect.questions)} questions"
    )
