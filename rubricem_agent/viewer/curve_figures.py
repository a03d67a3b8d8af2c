"""A training run's curves as the API tells them: the figures of its report, as numbers."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rubricem_agent.learn.expected import find_expected
from rubricem_agent.learn.metrics_log import ExamLine, StepLine, UpdateTold
from rubricem_agent.viewer.api_models.runs import Curve, Figure
from rubricem_agent.viewer.training_run import Run
from rubricem_env.domain.stage import STAGES, Stage

HELD_OUT, JUDGE, POLICY, COST = (
    "Held-out quality",
    "Judge against truth",
    "The policy",
    "Reflections and cost",
)
SHARE = (0.0, 1.0)
Read = Callable[[StepLine], float | None]


def make_figures(run: Run) -> tuple[Figure, ...]:
    """All figures of a run; those without curves were not measured in it."""
    return (*_held_out(run), *_judged(run), *_policy(run), *_cost(run))


class _Line(NamedTuple):
    """A curve that is still to be read from the log."""

    name: str
    read: Read
    stage: str = ""
    is_dashed: bool = False


def _held_out(run: Run) -> Iterator[Figure]:
    answer = [_exam_curve("this run", run.log.exams, Stage.ANSWER)]
    expected = find_expected(run.recipe, run.settings) if run.recipe else None
    if expected is not None and run.log.exams:
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
    yield _figure("held_out.answer", HELD_OUT, "Answers to held-out questions", answer, including=SHARE)
    stages = [_exam_curve(stage.value, run.log.exams, stage) for stage in STAGES]
    yield _figure("held_out.stages", HELD_OUT, "All stages on held-out questions", stages, including=SHARE)
    valid = [
        Curve(
            name="valid",
            x=tuple(float(exam.step) for exam in run.log.exams),
            y=tuple(exam.valid for exam in run.log.exams),
        )
    ]
    yield _figure("held_out.valid", HELD_OUT, "Valid scaffolds on held-out questions", valid, including=SHARE)


def _judged(run: Run) -> Iterator[Figure]:
    for stage in STAGES:
        name = stage.value
        lines = (
            _Line("truth", _true_of(name), name),
            _Line("judge", _judged_of(name), name, True),
        )
        yield _steps(run, f"judged.{name}", JUDGE, name.capitalize(), lines, including=SHARE)


def _policy(run: Run) -> Iterator[Figure]:
    for key, title, unit, read in (
        ("kl", "KL from the reference", "nats a token", lambda told: told.kl),
        ("entropy", "Entropy", "nats a token", lambda told: told.entropy),
        ("grad_norm", "Gradient norm before clipping", "", lambda told: told.grad_norm),
    ):
        yield _steps(run, f"policy.{key}", POLICY, title, _phases(read), unit=unit, including=(0.0,))
    for stage in STAGES:
        lines = [_Line(stage.value, _kl_of(stage), stage.value)]
        title = f"KL of the {stage.value} stage"
        yield _steps(run, f"policy.kl.{stage.value}", POLICY, title, lines, unit="nats a token", including=(0.0,))
    habits = (
        _Line("valid", lambda line: line.habits.valid if line.habits else None),
        _Line("repeated searches", lambda line: line.habits.repeated_calls if line.habits else None),
    )
    yield _steps(run, "policy.habits", POLICY, "Valid scaffolds and repeated searches", habits, including=SHARE)
    words = [_Line("words", lambda line: line.habits.answer_words if line.habits else None)]
    yield _steps(run, "policy.words", POLICY, "Words of an answer", words)
    cosine = [_Line("task and reflection", lambda line: line.gradients.cosine if line.gradients else None)]
    yield _steps(run, "policy.cosine", POLICY, "Cosine of the phases' gradients", cosine, including=(0.0,))


def _cost(run: Run) -> Iterator[Figure]:
    utility = [_Line("utility", lambda line: line.utility)]
    yield _steps(run, "cost.utility", COST, "Utility of reflections, by the judge", utility)
    bank = [_Line("lessons", lambda line: float(line.bank))]
    yield _steps(run, "cost.bank", COST, "Lessons in the bank", bank, including=(0.0,))
    parts = dict.fromkeys(part for line in run.log.steps for part in line.seconds)
    seconds = [_Line(part, _seconds_of(part)) for part in parts]
    yield _steps(run, "cost.seconds", COST, "Seconds of a step", seconds, unit="seconds", including=(0.0,))
    tokens = [_Line("sampled", lambda line: float(line.habits.policy_tokens) if line.habits else None)]
    yield _steps(run, "cost.tokens", COST, "Tokens sampled in a step", tokens, unit="tokens", including=(0.0,))


def _true_of(stage: str) -> Read:
    return lambda line: line.true.get(stage)


def _judged_of(stage: str) -> Read:
    return lambda line: line.judged.get(stage)


def _phases(read: Callable[[UpdateTold], float]) -> tuple[_Line, ...]:
    return (
        _Line("task", lambda line: read(line.task) if line.task else None),
        _Line("reflection", lambda line: read(line.reflection) if line.reflection else None),
    )


def _kl_of(stage: Stage) -> Read:
    return lambda line: line.task.stages[stage.value].kl if line.task and stage.value in line.task.stages else None


def _seconds_of(part: str) -> Read:
    return lambda line: line.seconds.get(part)


def _exam_curve(name: str, exams: Sequence[ExamLine], stage: Stage) -> Curve:
    known = [(exam.step, exam.held_out[stage.value]) for exam in exams if stage.value in exam.held_out]
    return Curve(
        name=name, x=tuple(float(step) for step, _ in known), y=tuple(value for _, value in known), stage=stage.value
    )


def _steps(
    run: Run,
    key: str,
    section: str,
    title: str,
    lines: Sequence[_Line],
    *,
    unit: str = "",
    including: tuple[float, ...] = (),
) -> Figure:
    curves = []
    for line in lines:
        known = [(step.step, value) for step in run.log.steps if (value := line.read(step)) is not None]
        curves.append(
            Curve(
                name=line.name,
                x=tuple(float(step) for step, _ in known),
                y=tuple(value for _, value in known),
                dashed=line.is_dashed,
                stage=line.stage,
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
