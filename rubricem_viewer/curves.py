"""The curves of training runs as figures of numbers, for one run or for several side by side."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rubricem_env.domain.errors import boundary
from rubricem_records.runs.expected_curves import find_expected
from rubricem_records.runs.levels import find_levels
from rubricem_records.runs.log_lines import NumberPath, read_number
from rubricem_records.runs.recorded_run import RecordedRun
from rubricem_records.runs.run_settings import flatten_settings
from rubricem_viewer.api.figures import Comparison, Curve, Figure
from rubricem_viewer.api.runs import RunCard
from rubricem_viewer.refusals import UnreadableRunError

HELD_OUT = "Held-out quality"
JUDGE = "Judge against truth"
JUDGE_ALONE = "The judge's scores"
POLICY = "The policy"
COST = "Reflections and cost"
SHARE = (0.0, 1.0)
FROM_ZERO = (0.0,)
NATS = "nats a token"
_NOTES = {
    JUDGE: (
        "Rollouts of training, stage by stage. Rubrics evolve towards what separates the rollouts, so the judge's "
        "level may fall while the truth rises; a judge that rises alone is being gamed."
    ),
    JUDGE_ALONE: (
        "Rollouts of training, stage by stage. No truth is known of these questions. Rubrics evolve towards what "
        "separates the rollouts, so the level may fall while the policy improves."
    ),
    POLICY: (
        "Where the phases' gradients have a cosine below zero, reflecting and researching pull the shared policy apart."
    ),
}
_BY_TRUTH = "True quality, by the almanac, on questions that training never sees, without the bank."
_BY_JUDGE = (
    "The judge's scores on questions that training never sees, without the bank. No truth is known of these questions."
)


def make_figures(run: RecordedRun) -> tuple[Figure, ...]:
    """All figures of a run; those without curves were not measured in it.

    Raises:
        UnreadableRunError: the log has a number that no curve can hold.
    """
    with boundary(UnreadableRunError, f"draw the curves of {run.folder}"):
        return (*_held_out(run), *_judged(run), *_policy(run), *_cost(run))


def _held_out(run: RecordedRun) -> Iterator[Figure]:
    evaluations = run.log.evaluations
    note = "" if not evaluations else _BY_TRUTH if evaluations[-1].by == "truth" else _BY_JUDGE
    by_stage = {
        stage: _curve(stage, [(line.step, line.held_out.get(stage)) for line in evaluations], stage=stage)
        for stage in run.stages
    }
    answer = [by_stage[run.stages[-1]].model_copy(update={"name": "this run"})]
    expected = find_expected(run.recipe, run.settings) if run.recipe else None
    if expected is not None and evaluations:
        # Beyond the run's own points there is nothing to compare.
        points = [point for point in expected.held_out_answer if point.step <= evaluations[-1].step]
        band = {"low": tuple(point.lowest for point in points), "high": tuple(point.highest for point in points)}
        mean = _curve(f"expected ({expected.seeds} seeds)", [(at.step, at.mean) for at in points], dashed=True)
        answer.append(mean.model_copy(update=band))
    if evaluations:
        ends = (0.0, float(max(evaluations[-1].step, 1)))
        levels = find_levels(run.settings).items()
        answer += [
            Curve(name=name, x=ends, y=(at, at), low=(at, at), high=(at, at), dashed=True) for name, at in levels
        ]
    valid = [_curve("valid", [(line.step, line.valid) for line in evaluations])]
    for key, title, curves in (
        ("answer", "Answers to held-out questions", answer),
        ("stages", "All stages on held-out questions", list(by_stage.values())),
        ("valid", "Valid scaffolds on held-out questions", valid),
    ):
        yield _figure(f"held_out.{key}", HELD_OUT, title, curves, including=SHARE, note=note)
    curves = []
    for name in dict.fromkeys(line.benchmark for line in run.log.benchmarks):
        lines = [line for line in run.log.benchmarks if line.benchmark == name]
        band = {"low": tuple(line.low for line in lines), "high": tuple(line.high for line in lines)}
        curves.append(_curve(name, [(line.step, line.score) for line in lines]).model_copy(update=band))
    title = "Benchmarks, by `rubricem watch`"
    yield _figure("held_out.benchmarks", HELD_OUT, title, curves, including=SHARE, note=note)


def _judged(run: RecordedRun) -> Iterator[Figure]:
    section = JUDGE if any(line.true for line in run.log.steps) else JUDGE_ALONE
    for stage in run.stages:
        lines = {"truth": ("true", stage), "judge": ("judged", stage)}
        curves = _step_curves(run, lines, stage=stage, dashed="judge")
        yield _figure(f"judged.{stage}", section, stage.capitalize(), curves, including=SHARE)


def _policy(run: RecordedRun) -> Iterator[Figure]:
    for key, title, unit in (
        ("kl", "KL from the reference", NATS),
        ("entropy", "Entropy", NATS),
        ("grad_norm", "Gradient norm before clipping", ""),
    ):
        curves = _step_curves(run, {phase: (phase, key) for phase in ("task", "reflection")})
        yield _figure(f"policy.{key}", POLICY, title, curves, unit=unit, including=FROM_ZERO)
    for stage in run.stages:
        curves = _step_curves(run, {stage: ("task", "stages", stage, "kl")}, stage=stage)
        yield _figure(f"policy.kl.{stage}", POLICY, f"KL of the {stage} stage", curves, unit=NATS, including=FROM_ZERO)
    entropy = _step_curves(run, {stage: ("task", "stages", stage, "entropy") for stage in run.stages})
    yield _figure("policy.entropy.stages", POLICY, "Entropy by stage", entropy, unit=NATS, including=FROM_ZERO)
    spread = _step_curves(run, {stage: ("spread", stage) for stage in run.stages})
    yield _figure("policy.spread", POLICY, "Groups whose scores differ, by stage", spread, including=FROM_ZERO)
    rollout_stats = _step_curves(
        run, {"valid": ("rollout_stats", "valid"), "repeated searches": ("rollout_stats", "repeated_calls")}
    )
    yield _figure(
        "policy.rollout_stats", POLICY, "Valid scaffolds and repeated searches", rollout_stats, including=SHARE
    )
    words = _step_curves(run, {"words": ("rollout_stats", "answer_words")})
    yield _figure("policy.words", POLICY, "Words of an answer", words)
    cosine = _step_curves(run, {"task and reflection": ("gradients", "cosine")})
    yield _figure("policy.cosine", POLICY, "Cosine of the phases' gradients", cosine, including=FROM_ZERO)


def _cost(run: RecordedRun) -> Iterator[Figure]:
    utility = _step_curves(run, {"utility": ("utility",)})
    yield _figure("cost.utility", COST, "Utility of reflections, by the judge", utility)
    bank = _step_curves(run, {"lessons": ("bank",)})
    yield _figure("cost.bank", COST, "Lessons in the bank", bank, including=FROM_ZERO)
    parts = dict.fromkeys(part for line in run.log.steps for part in line.seconds)
    seconds = _step_curves(run, {part: ("seconds", part) for part in parts})
    yield _figure("cost.seconds", COST, "Seconds of a step", seconds, unit="seconds", including=FROM_ZERO)
    tokens = _step_curves(run, {"sampled": ("rollout_stats", "policy_tokens")})
    yield _figure("cost.tokens", COST, "Tokens sampled in a step", tokens, unit="tokens", including=FROM_ZERO)


def _step_curves(
    run: RecordedRun, lines: Mapping[str, NumberPath], *, stage: str = "", dashed: str = ""
) -> list[Curve]:
    """A curve over the steps for each name; `dashed` is the name of the dashed one."""
    return [
        _curve(
            name, [(line.step, read_number(line, place)) for line in run.log.steps], stage=stage, dashed=name == dashed
        )
        for name, place in lines.items()
    ]


def _curve(name: str, points: Iterable[tuple[int, float | None]], *, stage: str = "", dashed: bool = False) -> Curve:
    """The points that have a number."""
    known = [(float(step), value) for step, value in points if value is not None]
    x, y = zip(*known, strict=True) if known else ((), ())
    return Curve(name=name, x=x, y=y, stage=stage, dashed=dashed)


def _figure(
    key: str,
    section: str,
    title: str,
    curves: Sequence[Curve],
    *,
    unit: str = "",
    including: tuple[float, ...] = (),
    note: str = "",
) -> Figure:
    """A figure with the curves that have a point; `note` is said of its section where nothing is said of all runs."""
    drawn = tuple(curve for curve in curves if curve.x)
    said = note or _NOTES.get(section, "")
    return Figure(key=key, section=section, note=said, title=title, unit=unit, including=including, curves=drawn)


MAX_VALUE = 200
_IGNORED = ("out",)
"""Settings that differ between any two runs and say nothing."""


ACROSS_JUDGES = "These runs have different judges, so their scores by the judge are no difference of policies alone."


def compare_runs(
    runs: Sequence[tuple[RunCard, RecordedRun]], *, policies: Sequence[str], judges: Sequence[str]
) -> Comparison:
    """Compare runs in the given order. A figure of one line has one curve for each run; others are split by line."""
    split = [[single for figure in make_figures(run) for single in _split(figure)] for _, run in runs]
    keys = dict.fromkeys(figure.key for figures in split for figure in figures)
    flat = [flatten_settings(run.settings) for _, run in runs]
    settings = {name: tuple(of_run.get(name, "")[:MAX_VALUE] for of_run in flat) for name in sorted(set().union(*flat))}
    return Comparison(
        runs=tuple(card for card, _ in runs),
        policies=tuple(policies),
        judges=tuple(judges),
        note=_note_on(runs) if len(set(filter(None, judges))) > 1 else "",
        differs={name: of for name, of in settings.items() if name not in _IGNORED and len(set(of)) > 1},
        figures=tuple(_merge(key, [card for card, _ in runs], split) for key in keys),
    )


def _note_on(runs: Sequence[tuple[RunCard, RecordedRun]]) -> str:
    is_true = all(line.by == "truth" for _, run in runs for line in run.log.evaluations)
    return f"{ACROSS_JUDGES} Held-out quality is by {'truth' if is_true else 'these judges too'}."


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
    of_runs = [next((figure for figure in figures if figure.key == key), None) for figures in split]
    first = next(figure for figure in of_runs if figure is not None)
    curves = tuple(
        curve.model_copy(update={"name": card.name, "run": card.id, "dashed": False})
        for card, figure in zip(cards, of_runs, strict=True)
        if figure is not None
        for curve in figure.curves
    )
    return first.model_copy(update={"curves": curves})
