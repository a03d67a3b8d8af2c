"""The curves of training runs as figures of numbers, for one run or for several side by side."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rubricem_agent.learn.metrics import EvaluationLine, StepLine, UpdateMetrics
from rubricem_agent.learn.monitor import RecordedRun, find_expected, find_levels
from rubricem_agent.viewer.api_runs import Comparison, Curve, Figure, RunCard
from rubricem_agent.viewer.records import UnreadableRunError
from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.errors import boundary

HELD_OUT, JUDGE, POLICY, COST = (
    "Held-out quality",
    "Judge against truth",
    "The policy",
    "Reflections and cost",
)
SHARE = (0.0, 1.0)
Read = Callable[[StepLine], float | None]


def make_figures(run: RecordedRun) -> tuple[Figure, ...]:
    """All figures of a run; those without curves were not measured in it.

    Raises:
        UnreadableRunError: the log has a number that no curve can hold.
    """
    with boundary(UnreadableRunError, f"draw the curves of {run.folder}"):
        return (*_held_out(run), *_judged(run), *_policy(run), *_cost(run))


def _held_out(run: RecordedRun) -> Iterator[Figure]:
    answer = [_evaluation_curve("this run", run.log.evaluations, Stage.ANSWER)]
    expected = find_expected(run.recipe, run.settings) if run.recipe else None
    if expected is not None and run.log.evaluations:
        points = expected.held_out_answer
        answer.append(
            Curve(
                name=f"expected ({expected.seeds} seeds)",
                x=tuple(float(point.step) for point in points),
                y=tuple(point.mean for point in points),
                low=tuple(point.lowest for point in points),
                high=tuple(point.highest for point in points),
                dashed=True,
            )
        )
    if run.log.evaluations:
        ends = (0.0, float(max(run.log.evaluations[-1].step, 1)))
        levels = find_levels(run.settings).items()
        answer += [
            Curve(name=name, x=ends, y=(at, at), low=(at, at), high=(at, at), dashed=True) for name, at in levels
        ]
    yield _figure("held_out.answer", HELD_OUT, "Answers to held-out questions", answer, including=SHARE)
    stages = [_evaluation_curve(stage.value, run.log.evaluations, stage) for stage in STAGES]
    yield _figure("held_out.stages", HELD_OUT, "All stages on held-out questions", stages, including=SHARE)
    valid = [
        Curve(
            name="valid",
            x=tuple(float(evaluation.step) for evaluation in run.log.evaluations),
            y=tuple(evaluation.valid for evaluation in run.log.evaluations),
        )
    ]
    yield _figure("held_out.valid", HELD_OUT, "Valid scaffolds on held-out questions", valid, including=SHARE)


def _judged(run: RecordedRun) -> Iterator[Figure]:
    for stage in STAGES:
        name = stage.value
        lines = {"truth": _true_of(name), "judge": _judged_of(name)}
        yield _steps(
            run, f"judged.{name}", JUDGE, name.capitalize(), lines, including=SHARE, stage=name, dashed="judge"
        )


def _policy(run: RecordedRun) -> Iterator[Figure]:
    for key, title, unit, read in (
        ("kl", "KL from the reference", "nats a token", lambda metrics: metrics.kl),
        ("entropy", "Entropy", "nats a token", lambda metrics: metrics.entropy),
        ("grad_norm", "Gradient norm before clipping", "", lambda metrics: metrics.grad_norm),
    ):
        yield _steps(run, f"policy.{key}", POLICY, title, _phases(read), unit=unit, including=(0.0,))
    for stage in STAGES:
        name = stage.value
        lines, title = {name: _kl_of(stage)}, f"KL of the {name} stage"
        yield _steps(run, f"policy.kl.{name}", POLICY, title, lines, unit="nats a token", including=(0.0,), stage=name)
    for key, title, unit, read_stage in (
        ("entropy.stages", "Entropy by stage", "nats a token", _entropy_of),
        ("spread", "Groups whose scores differ, by stage", "", _spread_of),
    ):
        by_stage = {stage.value: read_stage(stage) for stage in STAGES}
        yield _steps(run, f"policy.{key}", POLICY, title, by_stage, unit=unit, including=(0.0,))
    statistics: Mapping[str, Read] = {
        "valid": lambda line: line.habits.valid if line.habits else None,
        "repeated searches": lambda line: line.habits.repeated_calls if line.habits else None,
    }
    yield _steps(run, "policy.habits", POLICY, "Valid scaffolds and repeated searches", statistics, including=SHARE)
    words: Mapping[str, Read] = {"words": lambda line: line.habits.answer_words if line.habits else None}
    yield _steps(run, "policy.words", POLICY, "Words of an answer", words)
    cosine: Mapping[str, Read] = {"task and reflection": lambda line: line.gradients.cosine if line.gradients else None}
    yield _steps(run, "policy.cosine", POLICY, "Cosine of the phases' gradients", cosine, including=(0.0,))


def _cost(run: RecordedRun) -> Iterator[Figure]:
    utility: Mapping[str, Read] = {"utility": lambda line: line.utility}
    yield _steps(run, "cost.utility", COST, "Utility of reflections, by the judge", utility)
    bank: Mapping[str, Read] = {"lessons": lambda line: float(line.bank)}
    yield _steps(run, "cost.bank", COST, "Lessons in the bank", bank, including=(0.0,))
    parts = dict.fromkeys(part for line in run.log.steps for part in line.seconds)
    seconds = {part: _seconds_of(part) for part in parts}
    yield _steps(run, "cost.seconds", COST, "Seconds of a step", seconds, unit="seconds", including=(0.0,))
    tokens: Mapping[str, Read] = {"sampled": lambda line: float(line.habits.policy_tokens) if line.habits else None}
    yield _steps(run, "cost.tokens", COST, "Tokens sampled in a step", tokens, unit="tokens", including=(0.0,))


def _true_of(stage: str) -> Read:
    return lambda line: line.true.get(stage)


def _judged_of(stage: str) -> Read:
    return lambda line: line.judged.get(stage)


def _phases(read: Callable[[UpdateMetrics], float]) -> Mapping[str, Read]:
    return {
        "task": lambda line: read(line.task) if line.task else None,
        "reflection": lambda line: read(line.reflection) if line.reflection else None,
    }


def _kl_of(stage: Stage) -> Read:
    return lambda line: line.task.stages[stage.value].kl if line.task and stage.value in line.task.stages else None


def _entropy_of(stage: Stage) -> Read:
    return lambda line: line.task.stages[stage.value].entropy if line.task and stage.value in line.task.stages else None


def _spread_of(stage: Stage) -> Read:
    return lambda line: line.spread.get(stage.value)


def _seconds_of(part: str) -> Read:
    return lambda line: line.seconds.get(part)


def _evaluation_curve(name: str, evaluations: Sequence[EvaluationLine], stage: Stage) -> Curve:
    known = [
        (evaluation.step, evaluation.held_out[stage.value])
        for evaluation in evaluations
        if stage.value in evaluation.held_out
    ]
    return Curve(
        name=name, x=tuple(float(step) for step, _ in known), y=tuple(value for _, value in known), stage=stage.value
    )


def _steps(
    run: RecordedRun,
    key: str,
    section: str,
    title: str,
    lines: Mapping[str, Read],
    *,
    unit: str = "",
    including: tuple[float, ...] = (),
    stage: str = "",
    dashed: str = "",
) -> Figure:
    """A figure of the steps; `dashed` is the name of its dashed line."""
    curves = []
    for name, read in lines.items():
        known = [(step.step, value) for step in run.log.steps if (value := read(step)) is not None]
        curves.append(
            Curve(
                name=name,
                x=tuple(float(step) for step, _ in known),
                y=tuple(value for _, value in known),
                dashed=name == dashed,
                stage=stage,
            )
        )
    return _figure(key, section, title, curves, unit=unit, including=including)


def _figure(
    key: str,
    section: str,
    title: str,
    curves: Sequence[Curve],
    *,
    unit: str = "",
    including: tuple[float, ...] = (),
) -> Figure:
    """A figure with the curves that have a point."""
    drawn = tuple(curve for curve in curves if curve.x)
    return Figure(key=key, section=section, title=title, unit=unit, including=including, curves=drawn)


MAX_VALUE = 200
_IGNORED = ("out",)
"""Settings that differ between any two runs and say nothing."""


ACROSS_JUDGES = (
    "These runs have different judges, so their scores by the judge are no difference of policies alone. Held-out "
    "quality is by truth."
)


def compare_runs(
    runs: Sequence[tuple[RunCard, RecordedRun]], *, policies: Sequence[str], judges: Sequence[str]
) -> Comparison:
    """Compare runs in the given order. A figure of one line has one curve for each run; others are split by line."""
    split = [[single for figure in make_figures(run) for single in _split(figure)] for _, run in runs]
    keys = dict.fromkeys(figure.key for figures in split for figure in figures)
    return Comparison(
        runs=tuple(card for card, _ in runs),
        policies=tuple(policies),
        judges=tuple(judges),
        note=ACROSS_JUDGES if len(set(filter(None, judges))) > 1 else "",
        differs=_differences([run.settings for _, run in runs]),
        figures=tuple(_merge(key, [card for card, _ in runs], split) for key in keys),
    )


def _split(figure: Figure) -> list[Figure]:
    """A figure with several lines as several with one; expected bands are left out."""
    own = [curve for curve in figure.curves if not curve.low]
    if len(own) <= 1:
        return [figure.model_copy(update={"curves": tuple(own)})]
    return [
        figure.model_copy(
            update={"key": f"{figure.key}:{curve.name}", "title": f"{figure.title}: {curve.name}", "curves": (curve,)}
        )
        for curve in own
    ]


def _merge(key: str, cards: Sequence[RunCard], split: Sequence[Sequence[Figure]]) -> Figure:
    found = [next((figure for figure in figures if figure.key == key), None) for figures in split]
    first = next(figure for figure in found if figure is not None)
    curves = tuple(
        curve.model_copy(update={"name": card.name, "run": card.id, "dashed": False})
        for card, figure in zip(cards, found, strict=True)
        if figure is not None
        for curve in figure.curves
    )
    return first.model_copy(update={"curves": curves})


def _differences(settings: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    flat = [_flatten(one) for one in settings]
    keys = sorted(set().union(*flat))
    rows = {key: tuple(one.get(key, "") for one in flat) for key in keys if key not in _IGNORED}
    return {key: values for key, values in rows.items() if len(set(values)) > 1}


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings under dotted names, each value as JSON writes it."""
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = json.dumps(value, ensure_ascii=False)[:MAX_VALUE]
    return flat
