"""`rubricem judge` scores a group of trajectories; `rubricem calibrate` measures a judge, or our prompts for one."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.look import read_trajectory_rows
from rubricem_agent.cli.terminal import (
    INCOMPLETE,
    PriceOption,
    ProbeOption,
    Terminal,
    command,
    inert,
    parse_prices,
    plain_table,
)
from rubricem_agent.config import JUDGE_NAMES, RULES, EvalConfig, JudgeConfig
from rubricem_agent.evals.records import cost_cells
from rubricem_agent.wiring.eval_plan import PlannedEvaluation
from rubricem_agent.wiring.evals import WordingAgreement, compare_prompts, plan_calibration
from rubricem_agent.wiring.models import JUDGE_KEY, BuiltJudge, build_judge, naming
from rubricem_agent.wiring.probe import model_probes, require_answers
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.inputs import read_lines, read_text, validating
from rubricem_env.domain.judgement import Rubric, StageScore
from rubricem_env.domain.trajectory import Query, Trajectory, load_trajectory
from rubricem_env.judge.audit import Agreement, Calibration, LabelledExample, calibrate as run_calibration
from rubricem_env.judge.base import Contrast, Group, Judge, Proposal, ScoringRequest, ScoringResult
from rubricem_env.judge.pipeline import StepJudge, describe_group
from rubricem_env.judge.rubrics import RubricBuffer, RubricSet, read_rubrics
from rubricem_env.judge.scoring import GroupJudgement, RolloutJudgement
from rubricem_env.llm.usage import Meter
from rubricem_env.scaffold.parsed import parse_trajectory, unfounded_claims

_NAME_WIDTH = 40
_SHOWN_DISAGREEMENTS = 10
JudgeOption = Annotated[str, typer.Option("--judge", help=f"{JUDGE_NAMES}.")]


class WatchedJudge:
    """A judge that reports each scored attempt; its scores are unchanged."""

    def __init__(self, judge: Judge, on_scored: Callable[[int], None]) -> None:
        self.name = judge.name
        self._judge = judge
        self._on_scored = on_scored

    async def propose(self, contrast: Contrast) -> Proposal:
        return await self._judge.propose(contrast)

    async def score(self, request: ScoringRequest) -> ScoringResult:
        scored = await self._judge.score(request)
        self._on_scored(1)
        return scored


@command
def judge(
    terminal: Terminal,
    files: Annotated[list[Path], typer.Argument(help="Trajectories of one question: JSON, or JSON lines.")],
    judge: JudgeOption = "rules",
    rubrics: Annotated[
        Path | None, typer.Option(help="Further rubrics to score by: a JSON list, or one JSON object a line.")
    ] = None,
    no_probe: ProbeOption = False,
) -> None:
    """Score a group of trajectories stage by stage, criterion by criterion, with the reasons.

    Criteria come from contrast within the group and from --rubrics: rows of {"title", "description", "weight"} are
    answer criteria, a negative weight makes one a flaw; "stage" and "polarity" may be given instead. What tools showed
    is taken from the files; nothing is searched again.
    """
    group = _read_group(files)
    given = read_rubrics(read_text(rubrics, "a rubric file"), str(rubrics)) if rubrics is not None else ()
    names = list(group)
    judged, rubric_set, meter, judge_name = asyncio.run(
        _judge(list(group.values()), given, config=JudgeConfig(judge=judge), terminal=terminal, probe=not no_probe)
    )
    _show_group(judged, names, rubrics=rubric_set, meter=meter, terminal=terminal)
    scores = ("\t".join([*_cells(rollout), name]) for name, rollout in zip(names, judged.rollouts, strict=True))
    terminal.close(
        describe_group(judged, names, rubrics=rubric_set),
        {"trajectories": len(names), "criteria": len(judged.rubrics), "judge": judge_name},
        brief="\n".join(scores),
    )
    for name, trajectory in group.items():
        for claim in unfounded_claims(parse_trajectory(trajectory)):
            terminal.warn(inert(f"{name}: not borne out, and not counted: {claim}"))
    if judged.failures:
        terminal.warn(f"the judge gave no score for {judged.failures} of {len(names)} trajectories.")
    if judged.proposal_failure:
        terminal.warn(f"the judge could not propose criteria: {inert(judged.proposal_failure)}")
    if judged.failures or judged.proposal_failure:
        raise typer.Exit(1)


def _read_group(files: Sequence[Path]) -> dict[str, Trajectory]:
    """The trajectories of the files by name; raises UsageError unless all are distinct and of one question."""
    if len({file.resolve() for file in files}) < len(files):
        raise UsageError("a trajectory file is given twice; a group holds each attempt once.")
    group: dict[str, Trajectory] = {}
    for file in files:
        rows = read_trajectory_rows(file)
        for number, text in rows.items():
            name, where = (str(file),) * 2 if len(rows) == 1 else (f"{file}:{number}", f"{file}, line {number}")
            group[name] = load_trajectory(text, where)
    first_name, first = next(iter(group.items()))
    for name, trajectory in group.items():
        if not trajectory.question.strip():
            raise FileFormatError(f"{name} has no question; a judge needs the question.")
        if trajectory.query_key != first.query_key:
            raise UsageError(
                f"{name} is of another question than {first_name} ({trajectory.question[:60]!r} and "
                f"{first.question[:60]!r}); trajectories are contrasted within one question. Judge them apart."
            )
    return group


async def _judge(
    trajectories: Sequence[Trajectory],
    given: tuple[Rubric, ...],
    *,
    config: JudgeConfig,
    terminal: Terminal,
    probe: bool,
) -> tuple[GroupJudgement, RubricSet, Meter, str]:
    """The judged group, the rubrics afterwards, the cost, and the judge's name."""
    first = trajectories[0]
    persistent = tuple(rubric for rubric in given if rubric.persistent)
    others = tuple(rubric for rubric in given if not rubric.persistent)
    query = Query(question=first.question, answer_format=first.answer_format, rubrics=persistent)
    # Given rubrics that can be retired start as active ones, so that they compete with the judge's proposals.
    known = RubricSet().with_persistent(persistent).with_proposed(others, step=0)
    async with open_judge(config, probe=probe) as built:
        with terminal.bar(f"judging with {built.judge.name}", len(trajectories)) as advance:
            watched = WatchedJudge(built.judge, advance)
            step_judge = StepJudge(watched, RubricBuffer({query.key: known}), settings=config.settings)
            group = await step_judge.judge_group(Group.of(query, trajectories), step=0)
    return group, step_judge.buffer.rubrics(query.key), built.meter, built.judge.name


@asynccontextmanager
async def open_judge(config: JudgeConfig, *, probe: bool) -> AsyncIterator[BuiltJudge]:
    """The judge of the command line, which its user has named; with `probe` it has answered a first request."""
    environ = naming(os.environ, JUDGE_KEY, config.judge)
    async with aclosing(build_judge(config, environ)) as built:
        if probe:
            await require_answers(model_probes(environ, judges=[config.judge]))
        yield built


def _show_group(
    judged: GroupJudgement, names: Sequence[str], *, rubrics: RubricSet, meter: Meter, terminal: Terminal
) -> None:
    """Print the stage scores, each criterion with its scores and reasons, notes and the cost."""
    short = [name if len(name) <= _NAME_WIDTH else "…" + name[1 - _NAME_WIDTH :] for name in names]
    rollouts = list(zip(short, judged.rollouts, strict=True))
    rows = [(inert(name), *_cells(rollout)) for name, rollout in rollouts]
    terminal.show(plain_table("trajectory", *(stage.value for stage in STAGES), rows=rows))
    if not judged.rubrics:
        terminal.show(
            "No criterion: nothing separates the attempts, or there is only one. "
            "Give further attempts at the question, or --rubrics FILE."
        )
    for rubric in sorted(judged.rubrics, key=lambda rubric: STAGES.index(rubric.stage)):
        sign = "flaw" if rubric.polarity == "negative" else "quality"
        kind = ", persistent" if rubric.persistent else ""
        terminal.show(f"\n[bold]{rubric.stage}: {inert(rubric.title)}[/bold] ({sign}, weight {rubric.weight:g}{kind})")
        terminal.show(f"[dim]  {inert(rubric.description)}[/dim]")
        for name, rollout in rollouts:
            scored = next((score for score in rollout.rubric_scores if score.rubric_id == rubric.id), None)
            if scored is not None:
                terminal.show(f"  {scored.score:g}  {inert(name)}: {inert(scored.justification)}")
    if notes := _notes(judged, rollouts, rubrics):
        terminal.show("", *(f"[dim]{inert(note)}[/dim]" for note in notes))
    for phase, spent in sorted(meter.by_phase.items()):
        money = "price unknown" if spent.unpriced_calls else f"${spent.dollars:.4f}"
        tokens = f"{spent.usage.input_tokens} tokens in, {spent.usage.output_tokens} out"
        terminal.show(f"{phase}: {spent.usage.calls} calls, {tokens}, {money}")


def _notes(judged: GroupJudgement, rollouts: Sequence[tuple[str, RolloutJudgement]], rubrics: RubricSet) -> list[str]:
    # Without its code, which the log counts.
    notes = [f"rubric gate: {refused.partition(': ')[2]}" for refused in judged.refused]
    if judged.proposal_failure:
        notes.append(f"no new criteria: {judged.proposal_failure}")
    for name, rollout in rollouts:
        if rollout.failure:
            notes.append(f"{name}: {rollout.failure}")
        if rollout.injections:
            notes.append(f"{name} holds text that is meant for a judge: {', '.join(rollout.injections)}")
    if rubrics.archive:
        notes.append(f"{len(rubrics.archive)} criteria retired after scoring, {len(rubrics.active)} kept")
    return notes


def _cells(rollout: RolloutJudgement) -> list[str]:
    outcomes = (rollout.judgement.outcome(stage) for stage in STAGES)
    return [
        f"{outcome.score:.2f}{' (missing)' if outcome.missing else ''}"
        if isinstance(outcome, StageScore)
        else outcome.reason
        for outcome in outcomes
    ]


@dataclass(frozen=True)
class CalibrationOptions:
    """The options of `rubricem calibrate` for judge prompts. Field names are option names."""

    prompts: Annotated[
        str, typer.Option(help="Official judge prompts to hold ours against: a checkout, a folder of them, a package.")
    ] = ""
    limit: Annotated[int | None, typer.Option(min=1, help="With --prompts: the first N answers of each run.")] = None
    out: Annotated[Path, typer.Option(help="With --prompts: where verdicts are kept; the same folder resumes.")] = Path(
        "runs/calibrate"
    )
    budget: Annotated[float | None, typer.Option(min=0.01, help="With --prompts: dollars for each run's answers.")] = (
        None
    )
    price: PriceOption = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --prompts: estimate calls and money.")] = False


@command
def calibrate(
    terminal: Terminal,
    paths: Annotated[
        list[Path],
        typer.Argument(
            help='JSON lines {"trajectory": {...}, "rubric": {...}, "label": 0|1|2}; with --prompts, folders of '
            "evaluation runs.",
            metavar="FILE|RUN...",
        ),
    ],
    options: CalibrationOptions,
    judge: JudgeOption = "rules",
    no_probe: ProbeOption = False,
) -> None:
    """Run a judge over labelled examples and print its agreement with the labels.

    "trajectory" is an object as in a trajectory file, or the path of one beside FILE; "rubric" a row of a rubric file.
    With --prompts, one judge (by default that of the benchmark) reads the answers of RUN twice, with our own prompts and
    with the official ones; the command prints how far the verdicts and the scores agree. The same command resumes.
    """
    if options.prompts:
        _calibrate_prompts(paths, options, judge="" if judge == RULES else judge, terminal=terminal, probe=not no_probe)
        return
    if len(paths) > 1 or paths[0].is_dir():
        raise UsageError(
            f"{paths[-1]} is one of several, or a folder; a judge is calibrated on one file of labelled examples. Give "
            "that file, or hold our prompts of evaluation runs against the official ones with --prompts PLACE."
        )
    _calibrate_judge(paths[0], judge, terminal=terminal, probe=not no_probe)


def _calibrate_prompts(
    runs: Sequence[Path], options: CalibrationOptions, *, judge: str, terminal: Terminal, probe: bool
) -> None:
    """Judge the answers of every run in both wordings and print a row for each."""
    if len({run.resolve().name for run in runs}) < len(runs):
        raise UsageError(
            f"two runs have the same name; each keeps its verdicts under {options.out}. Calibrate them apart."
        )
    settings = EvalConfig(
        benchmark="",
        judges=(judge,) if judge else (),
        budget=options.budget,
        prices=parse_prices(options.price or ()),
        probe=probe,
    )
    pairs = [
        plan_calibration(settings, run, out=options.out, prompts=options.prompts, limit=options.limit) for run in runs
    ]
    if options.dry_run:
        _show_estimate([planned for pair in pairs for planned in pair], terminal)
        return
    results: list[WordingAgreement] = []
    failures = []
    for pair in pairs:
        manifest = pair[0].manifest
        with terminal.bar(f"judging {manifest.benchmark} twice", 2 * len(manifest.inputs.ids)) as advance:
            found = asyncio.run(compare_prompts(pair, lambda phase, failure: advance(1)))
        if isinstance(found, str):
            failures.append(found)
        else:
            results.append(found)
    heads = ("benchmark", "judge", "answers", "verdicts", "same", "kappa", "own minus official, points")
    terminal.show(plain_table(*heads, rows=map(_wording_row, results)))
    for failure in failures:
        terminal.warn(failure)
    missing = sum(one.missing for one in results)
    if missing:
        terminal.warn(
            f"{missing} answers lack a grade in one of the wordings. Run the same command to try outages again."
        )
    brief = "\n".join(f"{one.kappa:.2f}\t{one.benchmark}" for one in results)
    terminal.close([one.model_dump(mode="json") for one in results], f"the verdicts are in {options.out}.", brief=brief)
    if failures or missing:
        raise typer.Exit(INCOMPLETE)


def _wording_row(found: WordingAgreement) -> tuple[str, ...]:
    gap = found.scores
    return (
        f"{found.benchmark}, {found.mode}",
        inert(found.judge),
        str(found.answers),
        str(found.verdicts),
        f"{100 * found.same:.1f} %",
        f"{found.kappa:.2f} ({found.interval.low:.2f} to {found.interval.high:.2f})",
        f"{100 * gap.difference:+.1f} ({100 * gap.low:+.1f} to {100 * gap.high:+.1f})",
    )


def _show_estimate(plans: Sequence[PlannedEvaluation], terminal: Terminal) -> None:
    costs = [(plan.manifest, cost) for plan in plans for cost in plan.estimate() if cost.stage == "verdicts"]
    heads = ("benchmark", "prompts", "judge", "calls", "tokens read", "tokens written", "dollars")
    rows = ((of.benchmark, inert(of.prompts) or "our own", inert(cost.model), *cost_cells(cost)) for of, cost in costs)
    terminal.show(plain_table(*heads, rows=rows))
    total = f"{sum(cost.dollars for _, cost in costs):.2f}"
    document = [{"benchmark": of.benchmark, "prompts": of.prompts, **cost.model_dump()} for of, cost in costs]
    terminal.close(document, f"no model was called. Known prices add up to ${total}.", brief=total)


def _calibrate_judge(file: Path, judge: str, *, terminal: Terminal, probe: bool) -> None:
    examples = read_examples(file)

    async def calibrated() -> Calibration:
        async with open_judge(JudgeConfig(judge=judge), probe=probe) as built:
            with terminal.bar(f"scoring with {built.judge.name}", len(examples)) as advance:
                return await run_calibration(WatchedJudge(built.judge, advance), examples)

    result = asyncio.run(calibrated())
    rows = [(name, *agreement_cells(own)) for name, own in (*result.by_stage, ("all", result.overall))]
    terminal.show(plain_table("stage", "examples", "exact", "within one", "kappa", "bias", rows=rows))
    unscored = result.rubric_scores.count(None)
    if unscored:
        terminal.say(f"{unscored} examples got no score from the judge")
    differing = [
        (at, example, rubric_score)
        for at, (example, rubric_score) in enumerate(zip(examples, result.rubric_scores, strict=True))
        if rubric_score is not None and rubric_score.rounded != example.label
    ]
    differing.sort(key=lambda row: -abs(row[2].score - row[1].label))
    for at, example, rubric_score in differing[:_SHOWN_DISAGREEMENTS]:
        text = f"example {at + 1}, {example.rubric.title}: score {rubric_score.rounded}, label {example.label}. "
        terminal.show(f"[dim]{inert(text + rubric_score.justification)}[/dim]")
    kappa = agreement_cells(result.overall)[3]
    document = {
        "overall": result.overall._asdict(),
        "by_stage": {stage.value: agreement._asdict() for stage, agreement in result.by_stage},
        "unscored": unscored,
        "disagreements": [
            {
                "place": at,
                "title": e.rubric.title,
                "score": o.rounded,
                "label": e.label,
                "justification": o.justification,
            }
            for at, e, o in differing
        ],
    }
    terminal.close(document, {"judge": judge, "examples": len(examples), "kappa": kappa}, brief=kappa)
    if unscored:
        raise typer.Exit(1)


def read_examples(file: Path) -> list[LabelledExample]:
    """The examples of a JSON lines file.

    Raises:
        FileFormatError: the file cannot be read, is empty, or a line is not an example.
    """
    lines = read_lines(file, "a file of labelled examples")
    examples = [_read_example(line, where, folder=file.parent) for where, line in lines]
    if not examples:
        raise FileFormatError(f"{file} holds no example; each line is an object with trajectory, rubric and label.")
    return examples


def _read_example(line: str, where: str, *, folder: Path) -> LabelledExample:
    try:
        row = json.loads(line)
        trajectory, rubric, label = row["trajectory"], row["rubric"], row["label"]
    except (ValueError, KeyError, TypeError, RecursionError) as cause:
        raise FileFormatError(f"{where} is not an example; it needs trajectory, rubric and label.") from cause
    is_named = isinstance(trajectory, str)
    text = read_text(folder / trajectory, f"the trajectory in {where}") if is_named else json.dumps(trajectory)
    rubrics = read_rubrics(json.dumps([rubric]), where)
    if not rubrics:
        raise FileFormatError(f"{where} has a rubric of weight 0; there is nothing to agree on.")
    with validating(where, "A label is 0, 1 or 2."):
        return LabelledExample(trajectory=load_trajectory(text, where), rubric=rubrics[0], label=label)


def agreement_cells(agreement: Agreement) -> tuple[str, ...]:
    """Pairs, exact, within one, kappa and bias, as text."""
    shares = (agreement.exact, agreement.within_one, agreement.kappa)
    shown = tuple("-" if share is None else f"{share:.2f}" for share in shares)
    bias = "-" if agreement.bias is None else f"{agreement.bias:+.2f}"
    return (str(agreement.pairs), *shown, bias)
