"""Collapse: the signs by which a run is lost, looked for in the lines of its log, and the sentence that stops it.

Users of neighbouring systems report runs that die unnoticed between steps 160 and 600. Levels are means over a few
steps and are compared with the run's own beginning, so that no threshold depends on the policy or the task.

Judge drift: the training judge's scores rise over the steps and the truth does not follow.

Only a world with truth can know this directly; elsewhere a held-out judge takes the truth's place
(`rubricem_env.judge.audit`). The alarm tells people. It stops nothing, or truth would steer training.

What a run of a recipe is expected to look like: the range over the seeds of earlier runs, step by step.

Curves for the shipped configs lie in `expected/`, one file a recipe and config; `rubricem ablate` writes new ones.
They tell a person whether a run goes as others went. They judge nothing by themselves, and no run with another
policy, batch or rate is held against them.

The four recipes of the paper's ablation, as changes to a config.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import ConfigDict, Field, ValidationError

from rubricem_agent.learn.metrics import RunLog, StepLine
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import FileFormatError, RubricEMError
from rubricem_env.domain.trajectory import first_problem

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


class DriftSettings(Frozen):
    """When judge and truth count as parted."""

    window: Annotated[int, Field(ge=1)] = 6
    """Steps averaged for the first level and for the present one. 6 is a whole turn of the curriculum."""
    judge_rise: Annotated[float, Field(ge=0)] = 0.05
    """The judge must have risen by more than this: rubrics that get harder lower its scores, and that is no drift."""
    widening: Annotated[float, Field(ge=0)] = 0.1
    """How far the judge's rise may exceed the truth's."""


class Rise(NamedTuple):
    """How far the mean over all stages has come since the first steps."""

    judge: float
    truth: float


def measure_rise(lines: Sequence[StepLine], window: int) -> Rise | None:
    """Present level less first level of judge and truth; None before there are two windows of steps."""
    pairs = [(_drift_mean(line.judged), _drift_mean(line.true)) for line in lines]
    known = [(judge, truth) for judge, truth in pairs if judge is not None and truth is not None]
    if len(known) < 2 * window:
        return None
    judged, true = zip(*known, strict=True)
    return Rise(*((sum(column[-window:]) - sum(column[:window])) / window for column in (judged, true)))


def find_drift(lines: Sequence[StepLine], settings: DriftSettings) -> str | None:
    """The alarm as a sentence, or None while judge and truth go together."""
    rise = measure_rise(lines, settings.window)
    if rise is None or rise.judge <= settings.judge_rise or rise.judge - rise.truth <= settings.widening:
        return None
    return (
        f"step {lines[-1].step}: the judge gives {rise.judge:+.2f} more than at first and the truth has moved by "
        f"{rise.truth:+.2f}; they may part by {settings.widening:.2f}. The policy may be learning the judge instead of "
        "the task: look at the rubrics of the last steps, or go back to an earlier checkpoint."
    )


def _drift_mean(scores: Mapping[str, float | None]) -> float | None:
    given = [score for score in scores.values() if score is not None]
    return sum(given) / len(given) if given else None


SHIPPED = Path(__file__).parent / "expected"


class ExpectedPoint(Frozen):
    """True quality of the answers to held-out questions after a step, over seeds."""

    step: int
    mean: float
    lowest: float
    highest: float


class DecisiveSettings(Frozen):
    """What the curve of a recipe depends on."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=False)

    policy: str
    questions_per_step: int
    group_size: int
    window: int
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


class Departure(NamedTuple):
    """The latest step at which a run can be held against its expected curve."""

    step: int
    value: float
    point: ExpectedPoint

    @property
    def sentence(self) -> str:
        if self.point.lowest <= self.value <= self.point.highest:
            verdict = "as expected"
        else:
            verdict = "below what is expected" if self.value < self.point.lowest else "above what is expected"
        return (
            f"{verdict}: held-out answers {self.value:.3f} at step {self.step}; earlier runs of this recipe lay between "
            f"{self.point.lowest:.3f} and {self.point.highest:.3f}"
        )


def make_expected(recipe: str, logs: Sequence[RunLog], *, settings: Mapping[str, Any], made_by: str) -> Expected:
    """The range over the runs of a recipe, at the steps that all of them examined; `settings` are those of any of them.

    Raises:
        FileFormatError: the settings are not those of a local run.
    """
    try:
        decisive = DecisiveSettings.model_validate(settings)
    except ValidationError as cause:
        raise FileFormatError(f"the settings of {recipe} are of no local run {first_problem(cause)}") from cause
    curves = [{exam.step: exam.held_out["answer"] for exam in log.exams} for log in logs]
    shared = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    points = []
    for step in shared:
        values = [curve[step] for curve in curves]
        points.append(ExpectedPoint(step=step, mean=sum(values) / len(values), lowest=min(values), highest=max(values)))
    return Expected(
        recipe=recipe,
        settings=decisive,
        seeds=len(logs),
        made_by=made_by,
        held_out_answer=tuple(points),
    )


def find_expected(recipe: str, settings: Mapping[str, Any], folder: Path = SHIPPED) -> Expected | None:
    """The curve of a recipe under a run's settings; None where there is none, or the settings are of no local run.

    Raises:
        FileFormatError: a file of the folder is no curve.
    """
    try:
        wanted = DecisiveSettings.model_validate(settings)
    except ValidationError:
        return None
    curves = (_read_expected(path) for path in sorted(folder.glob("*.json")))
    return next((curve for curve in curves if (curve.recipe, curve.settings) == (recipe, wanted)), None)


def _read_expected(path: Path) -> Expected:
    try:
        return Expected.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as cause:
        reason = first_problem(cause) if isinstance(cause, ValidationError) else "it is not UTF-8."
        raise FileFormatError(f"{path} is no expected curve {reason} Make it anew with rubricem ablate.") from cause


def compare_with(expected: Expected, log: RunLog) -> Departure | None:
    """The run against the curve at the latest step that both have."""
    points = {point.step: point for point in expected.held_out_answer}
    shared = [exam for exam in log.exams if exam.step in points]
    if not shared:
        return None
    latest = shared[-1]
    return Departure(latest.step, latest.held_out["answer"], points[latest.step])


class Recipe(NamedTuple):
    """Which credit, and whether the policy reflects."""

    name: str
    """Of its folder."""
    title: str
    credit: str
    meta_policy: bool

    @property
    def changes(self) -> tuple[str, ...]:
        """KEY=VALUE."""
        return (f"credit={self.credit}", f"meta_policy={'true' if self.meta_policy else 'false'}")


RECIPES = (
    Recipe("answer_only", "answer-only GRPO", "terminal", False),
    Recipe("ss_grpo", "SS-GRPO", "stages", False),
    Recipe("answer_only_meta", "answer-only + meta-policy", "terminal", True),
    Recipe("whole", "SS-GRPO + meta-policy", "stages", True),
)
BASELINE = RECIPES[0]


def title_of(credit: str, *, meta_policy: bool) -> str:
    """What a run with these settings is called."""
    return next(one.title for one in RECIPES if (one.credit, one.meta_policy) == (credit, meta_policy))
