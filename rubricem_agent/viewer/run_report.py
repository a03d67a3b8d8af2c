"""The page of a run: what it learnt, what the judge made of it, and whether it stayed in good health."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rubricem_agent.learn.expected import Expected, compare_with, load_expected
from rubricem_agent.learn.metrics_log import SETTINGS_FILE, RunLog, StepLine, UpdateTold, read_log
from rubricem_agent.learn.recipes import RECIPES
from rubricem_agent.viewer.line_chart import BandPoint, Curve, Point, draw_chart
from rubricem_agent.viewer.page import alarm_box, charts, fill_page, folded, heading, paragraph, section, tiles
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.stage import STAGES


class Run(NamedTuple):
    """A run's folder, read."""

    folder: Path
    settings: dict[str, Any]
    """Empty where the folder has none."""
    log: RunLog

    @property
    def recipe(self) -> str | None:
        """Its name in the ablation."""
        key = (self.settings.get("credit"), self.settings.get("meta_policy"))
        return next((one.name for one in RECIPES if (one.credit, one.meta_policy) == key), None)

    @property
    def title(self) -> str:
        return next((one.title for one in RECIPES if one.name == self.recipe), "a training run")


def read_run(folder: Path) -> Run:
    """A run's log and settings.

    Raises:
        FileFormatError: the folder holds no run, or its settings are no JSON object.
    """
    log = read_log(folder)
    path = folder / SETTINGS_FILE
    try:
        settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as cause:
        raise FileFormatError(
            f"{path} is not JSON: {cause}. Start the run's command again to write it anew."
        ) from cause
    if not isinstance(settings, dict):
        raise FileFormatError(f"{path} holds no JSON object. Start the run's command again to write it anew.")
    return Run(folder, settings, log)


def render_run(run: Run) -> str:
    """The page of a run; works from the first line of its log on."""
    expected = load_expected(run.recipe) if run.recipe else None
    last = run.log.steps[-1].step if run.log.steps else 0
    lead = f"{run.folder}: {last} of {run.settings.get('steps', '?')} steps, seed {run.settings.get('seed', '?')}"
    sections = [
        heading(run.title[:1].upper() + run.title[1:], lead),
        *(alarm_box(line.alarm) for line in run.log.alarms),
        tiles(_tiles(run.log)),
        _held_out_section(run.log, expected),
        _judge_section(run.log.steps),
        _policy_section(run.log.steps),
        _cost_section(run.log.steps),
        folded("Settings", json.dumps(run.settings, indent=1, ensure_ascii=False)),
    ]
    return fill_page(f"{run.title}: {run.folder.name}", sections)


def _tiles(log: RunLog) -> Iterable[tuple[str, str]]:
    if log.exams:
        first, last = log.exams[0], log.exams[-1]
        yield "held-out answers", f"{first.held_out['answer']:.3f} → {last.held_out['answer']:.3f}"
        yield "valid scaffolds", f"{first.valid:.0%} → {last.valid:.0%}"
    if log.steps:
        yield "lessons in the bank", str(log.steps[-1].bank)
        yield "steps", str(log.steps[-1].step)
        yield "time of the steps", _duration(sum(sum(line.seconds.values()) for line in log.steps))


def _held_out_section(log: RunLog, expected: Expected | None) -> str:
    curves = [
        Curve(
            stage.value,
            [Point(exam.step, exam.held_out[stage.value]) for exam in log.exams if stage.value in exam.held_out],
        )
        for stage in STAGES
    ]
    mean = [Point(exam.step, exam.held_out["answer"]) for exam in log.exams]
    against = [Curve("this run", mean, colour=0)]
    note = "True quality on questions that training never sees, without the bank."
    if expected is not None:
        points = expected.held_out_answer
        band = [BandPoint(at.step, at.lowest, at.highest) for at in points]
        against.append(
            Curve(f"expected ({expected.seeds} seeds)", [Point(at.step, at.mean) for at in points], band, True, 4)
        )
        found = compare_with(expected, log)
        note += f" {found.sentence[:1].upper()}{found.sentence[1:]}." if found else ""
    figures = [
        draw_chart("Answers to held-out questions", against, including=(0, 1)),
        draw_chart("All stages", curves, including=(0, 1)),
    ]
    return section("Held-out quality", paragraph(note), charts(figures))


def _judge_section(steps: list[StepLine]) -> str:
    figures = []
    for stage in STAGES:
        judged = [Point(line.step, score) for line in steps if (score := line.judged.get(stage.value)) is not None]
        true = [Point(line.step, line.true[stage.value]) for line in steps if stage.value in line.true]
        figures.append(
            draw_chart(
                stage.value.capitalize(),
                [Curve("truth", true), Curve("judge", judged, is_dashed=True)],
                including=(0, 1),
            )
        )
    note = (
        "Rollouts of training, stage by stage. Rubrics evolve towards what separates the rollouts, so the judge's level "
        "may fall while the truth rises; a judge that rises alone is being gamed."
    )
    return section("Judge against truth", paragraph(note), charts(figures))


def _policy_section(steps: list[StepLine]) -> str:
    figures = [
        draw_chart("KL from the reference, nats a token", _phases(steps, lambda told: told.kl), including=(0,)),
        draw_chart("Entropy, nats a token", _phases(steps, lambda told: told.entropy), including=(0,)),
        draw_chart("Gradient norm before clipping", _phases(steps, lambda told: told.grad_norm), including=(0,)),
        draw_chart("Valid scaffolds and repeated searches, shares", _habits(steps), including=(0, 1)),
        draw_chart(
            "Words of an answer",
            [_curve("words", steps, lambda line: line.habits.answer_words if line.habits else None)],
        ),
        draw_chart("Cosine of the phases' gradients", [_curve("task and reflection", steps, _cosine)], including=(0,)),
    ]
    note = "Below zero, the last figure says that reflecting and researching pull the shared policy apart."
    return section("The policy", paragraph(note), charts(figures))


def _cost_section(steps: list[StepLine]) -> str:
    parts = list(dict.fromkeys(part for line in steps for part in line.seconds))
    seconds = [_curve(part, steps, _seconds_of(part)) for part in parts]
    figures = [
        draw_chart("Utility of reflections, by the judge", [_curve("utility", steps, lambda line: line.utility)]),
        draw_chart("Lessons in the bank", [_curve("lessons", steps, lambda line: line.bank)], including=(0,)),
        draw_chart("Seconds of a step", seconds, including=(0,)),
    ]
    return section("Reflections and cost", charts(figures))


def _phases(steps: list[StepLine], read: Callable[[UpdateTold], float]) -> list[Curve]:
    return [
        _curve("task", steps, lambda line: read(line.task) if line.task else None),
        _curve("reflection", steps, lambda line: read(line.reflection) if line.reflection else None),
    ]


def _habits(steps: list[StepLine]) -> list[Curve]:
    return [
        _curve("valid", steps, lambda line: line.habits.valid if line.habits else None),
        _curve("repeated", steps, lambda line: line.habits.repeated_calls if line.habits else None),
    ]


def _cosine(line: StepLine) -> float | None:
    return line.gradients.cosine if line.gradients else None


def _seconds_of(part: str) -> Callable[[StepLine], float | None]:
    return lambda line: line.seconds.get(part)


def _curve(name: str, steps: list[StepLine], read: Callable[[StepLine], float | None]) -> Curve:
    values = [(line.step, read(line)) for line in steps]
    return Curve(name, [Point(step, value) for step, value in values if value is not None])


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
