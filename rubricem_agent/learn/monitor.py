"""Monitors a run by its log: collapse stops it, judge drift writes a warning, expected curves say how others went.

Collapse: levels are means over a few steps, compared with the run's own beginning, so that no threshold depends on the
policy or the task. Users of neighbouring systems report runs that die unnoticed between steps 160 and 600.

Drift: the training judge's scores rise and the truth does not follow. Only a world with truth can measure this;
elsewhere the held-out audit (`rubricem_env.judge.audit`) compares two judges. It stops nothing, or truth would steer training.

Expected curves: the range over the seeds of earlier runs of a recipe, step by step. The shipped ones are in
`expected/`, one file a recipe and config; `python -m research.ablate` writes new ones. A run with another policy, batch or rate
is not compared with them.
"""

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from rubricem_agent.learn import metrics
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import RubricEMError
from rubricem_env.domain.inputs import package_text, read_text, validating

Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class WatchSettings(Frozen):
    """When a run counts as lost. A threshold of None is not watched."""

    window: Annotated[int, Field(ge=1)] = 6
    """Steps averaged for the first level and for the present one. 6 is one full turn of the curriculum."""
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


_Sign = tuple[str, str, metrics.NumberPath, Literal["floor", "limit"], bool]
"""A threshold's key, what it watches, its number on a line, the direction, and whether it is relative to the beginning."""
_SIGNS: Sequence[_Sign] = (
    ("shortest_answer", "answers are shrinking: words", ("rollout_stats", "answer_words"), "floor", True),
    ("longest_answer", "answers are exploding: words", ("rollout_stats", "answer_words"), "limit", True),
    ("repeated_calls", "searches repeat each other: share", ("rollout_stats", "repeated_calls"), "limit", False),
    ("lowest_entropy", "the entropy has collapsed: nats a token", ("task", "entropy"), "floor", True),
    ("largest_gradient", "the gradient is exploding: norm", ("task", "grad_norm"), "limit", True),
    ("largest_kl", "the policy has left its reference: KL", ("task", "kl"), "limit", False),
    ("fewest_valid", "the scaffold is falling apart: valid share", ("rollout_stats", "valid"), "floor", True),
)


def find_collapse(lines: Sequence[metrics.StepLine], settings: WatchSettings) -> str | None:
    """The first sign of collapse in the latest steps as a sentence; None for a healthy run."""
    return next((warning for sign in _SIGNS if (warning := _check_sign(sign, lines, settings))), None)


def _check_sign(sign: _Sign, lines: Sequence[metrics.StepLine], settings: WatchSettings) -> str | None:
    key, what, path, direction, is_relative = sign
    threshold: float | None = getattr(settings, key)
    window = settings.window
    values = [value for line in lines if (value := metrics.read_number(line, path)) is not None]
    if threshold is None or len(values) < 2 * window:
        return None
    first, present = sum(values[:window]) / window, sum(values[-window:]) / window
    bound = threshold * first if is_relative else threshold
    is_beyond = present < bound if direction == "floor" else present > bound
    # A level of 0 at the start can neither fall nor be a measure.
    if not is_beyond or (is_relative and first <= 0):
        return None
    side = "at least" if direction == "floor" else "at most"
    return (
        f"step {lines[-1].step}: {what} {present:.3g} over the last {window} steps, {first:.3g} over the first, "
        f"and {side} {bound:.3g} is allowed (watch.{key} = {threshold:g}). Start again in another folder with a "
        "lower learning_rate or a higher loss.kl_coefficient; to continue anyway, add "
        f"watch='{{{key}: null}}' to the same command."
    )


class DriftSettings(Frozen):
    """When judge and truth count as parted."""

    window: Annotated[int, Field(ge=1)] = 6
    """Steps averaged for the first level and for the present one. 6 is one full turn of the curriculum."""
    judge_rise: Annotated[float, Field(ge=0)] = 0.05
    """The judge must have risen by more than this: rubrics that get harder lower its scores, and that is no drift."""
    widening: Annotated[float, Field(ge=0)] = 0.1
    """How far the judge's rise may exceed the truth's."""


def measure_rise(lines: Sequence[metrics.StepLine], window: int) -> tuple[float, float] | None:
    """Present level minus first level, of judge and truth, over all stages; None before there are two windows of steps."""
    pairs = [(_mean_score(line.judged), _mean_score(line.true)) for line in lines]
    known = [(judge, truth) for judge, truth in pairs if judge is not None and truth is not None]
    if len(known) < 2 * window:
        return None
    judge, truth = ((sum(column[-window:]) - sum(column[:window])) / window for column in zip(*known, strict=True))
    return judge, truth


def find_drift(lines: Sequence[metrics.StepLine], settings: DriftSettings) -> str | None:
    """The warning as a sentence; None while judge and truth move together."""
    judge, truth = measure_rise(lines, settings.window) or (0.0, 0.0)
    if judge <= settings.judge_rise or judge - truth <= settings.widening:
        return None
    return (
        f"step {lines[-1].step}: the judge gives {judge:+.2f} more than at first and the truth has moved by "
        f"{truth:+.2f}; they may part by {settings.widening:.2f}. The policy may be learning the judge instead of "
        "the task: look at the rubrics of the last steps, or return to an earlier checkpoint."
    )


def find_divergence(lines: Sequence[metrics.StepLine]) -> str | None:
    """The held-out audit's warning of the latest step, unless the audit before it had one already."""
    audits = [line.audit for line in lines if line.audit is not None]
    if not audits or lines[-1].audit is None or not audits[-1].warning or (audits[1:] and audits[-2].warning):
        return None
    return f"step {lines[-1].step}: {audits[-1].warning}"


def watch_run(folder: Path, watch: WatchSettings, drift: DriftSettings | None = None) -> None:
    """Write the warnings of a run's latest step into its log, and stop a lost run; without `drift` that is not looked for.

    Raises:
        RubricEMError: the run is lost.
    """
    steps = metrics.read_log(folder).steps
    # A drift that the step before had is in the log.
    drifted = None if drift is None or find_drift(steps[:-1], drift) else find_drift(steps, drift)
    lost = find_collapse(steps, watch)
    for warning in (drifted, find_divergence(steps), lost):
        if warning:
            metrics.append_line(folder / metrics.METRICS_FILE, {"step": steps[-1].step, "alarm": warning})
    if lost:
        raise RubricEMError(lost)


def _mean_score(scores: Mapping[str, float | None]) -> float | None:
    given = [score for score in scores.values() if score is not None]
    return sum(given) / len(given) if given else None


SHIPPED = Path(__file__).parent / "expected"
_LEVELS: Sequence[Mapping[str, Any]] = json.loads(package_text("rubricem_agent.learn", "levels.json"))["levels"]
"""The held-out answers of policies beside which runs are drawn: the floor and the ceilings of a curve."""


class ExpectedPoint(Frozen):
    """True quality of the answers to held-out questions after a step, over seeds."""

    step: int
    mean: float
    lowest: float
    highest: float


class DecisiveSettings(Frozen):
    """The settings that the curve of a recipe depends on."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=False)

    policy: str
    data: str | None = None
    questions_per_step: int
    group_size: int
    window: int
    ahead: int = 0
    learning_rate: float
    temperature: float
    held_out: str


class Expected(Frozen):
    """The curve of a recipe."""

    recipe: str
    settings: DecisiveSettings
    seeds: int
    made_by: str
    """The command."""
    held_out_answer: tuple[ExpectedPoint, ...]


def find_levels(settings: Mapping[str, Any]) -> dict[str, float]:
    """By name: the held-out answers of the policies to compare a run of these settings with, the lowest first."""
    wanted = (settings.get("policy"), settings.get("held_out"), settings.get("data"))
    known = [level for level in _LEVELS if (level["policy"], level["held_out"], None) == wanted]
    return {level["name"]: level["answer"] for level in sorted(known, key=itemgetter("answer"))}


def make_expected(
    recipe: str, logs: Sequence[metrics.RunLog], *, settings: Mapping[str, Any], made_by: str
) -> Expected:
    """The range over the runs of a recipe, at the steps that all of them evaluated; `settings` are those of any of them.

    Raises:
        FileFormatError: the settings are not those of a local run.
    """
    with validating(f"the settings of {recipe} are not those of a local run"):
        decisive = DecisiveSettings.model_validate(settings)
    points = tuple(
        ExpectedPoint(step=step, mean=sum(values) / len(values), lowest=min(values), highest=max(values))
        for step, values in metrics.answers_by_step(logs).items()
    )
    return Expected(recipe=recipe, settings=decisive, seeds=len(logs), made_by=made_by, held_out_answer=points)


def find_expected(recipe: str, settings: Mapping[str, Any], folder: Path = SHIPPED) -> Expected | None:
    """The curve of a recipe under a run's settings; None without one, or if the settings are not those of a local run.

    Raises:
        FileFormatError: a file of the folder is not a curve.
    """
    try:
        wanted = DecisiveSettings.model_validate(settings)
    except ValidationError:
        return None
    for path in sorted(folder.glob("*.json")):
        with validating(f"{path} is not an expected curve", "Make it again with python -m research.ablate."):
            curve = Expected.model_validate_json(read_text(path, "a curve that python -m research.ablate wrote"))
        if (curve.recipe, curve.settings) == (recipe, wanted):
            return curve
    return None


def compare_with(expected: Expected, log: metrics.RunLog) -> str | None:
    """Compare the run with the curve at the latest step that both have, in a sentence; None without such a step."""
    points = {point.step: point for point in expected.held_out_answer}
    shared = [line for line in log.evaluations if line.step in points]
    if not shared:
        return None
    value, point = shared[-1].held_out["answer"], points[shared[-1].step]
    side = "below what is" if value < point.lowest else "above what is" if value > point.highest else "as"
    return (
        f"{side} expected: held-out answers {value:.3f} at step {point.step}; earlier runs of this recipe were between "
        f"{point.lowest:.3f} and {point.highest:.3f}"
    )
