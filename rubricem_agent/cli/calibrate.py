"""`rubricem calibrate`: measure a judge against labels, or our judge prompts against the official ones."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.command import INCOMPLETE, AttemptsScaffoldOption, PriceOption, ProbeOption, command
from rubricem_agent.cli.judges import AskOptions, JudgeOption, WatchedJudge, agreement_cells, open_judge, stage_set_of
from rubricem_agent.cli.terminal import Terminal, inert, plain_table
from rubricem_agent.config.judge import JudgeConfig
from rubricem_agent.evals.costs import cost_cells
from rubricem_agent.model_names import RULES
from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import PlannedEvaluation
from rubricem_agent.wiring.prices import parse_prices
from rubricem_agent.wiring.prompt_calibration import WordingAgreement, compare_prompts, plan_calibration
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.inputs import read_lines, read_text, validating
from rubricem_env.domain.trajectory import load_trajectory
from rubricem_env.judge.rubrics.files import read_rubrics
from rubricem_env.judge.trust.calibration import Calibration, LabelledExample, calibrate as run_calibration
from rubricem_env.llm.prices import describe_prices

_SHOWN_DISAGREEMENTS = 10


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
    asking: AskOptions,
    judge: JudgeOption = "rules",
    scaffold: AttemptsScaffoldOption = "",
    no_probe: ProbeOption = False,
) -> None:
    """Run a judge over labelled examples and print its agreement with the labels.

    "trajectory" is an object as in a trajectory file, or the path of one beside FILE; "rubric" a row of a rubric file.
    With --prompts, one judge (by default that of the benchmark) reads the answers of RUN twice, with our own prompts
    and with the official ones; the command prints how far the verdicts and the scores agree. The same command resumes.
    """
    if options.prompts:
        if asking.max_output_tokens != AskOptions.max_output_tokens:
            raise UsageError("--prompts takes the tokens of a reply from the benchmark; leave --max-output-tokens out.")
        settings = EvalConfig(
            benchmark="",
            judges=() if judge == RULES else (judge,),
            judge_concurrency=min(asking.concurrency, EvalConfig(benchmark="").judge_concurrency),
            budget=options.budget,
            prices=parse_prices(options.price or ()),
            probe=not no_probe,
        )
        _calibrate_prompts(paths, options, settings, terminal)
        return
    if len(paths) > 1 or paths[0].is_dir():
        raise UsageError(
            f"{paths[-1]} is one of several, or a folder; a judge is calibrated on one file of labelled examples. Give "
            "that file, or hold our prompts of evaluation runs against the official ones with --prompts PLACE."
        )
    _calibrate_judge(paths[0], asking.config(judge), scaffold, terminal=terminal, probe=not no_probe)


def _calibrate_prompts(
    runs: Sequence[Path], options: CalibrationOptions, settings: EvalConfig, terminal: Terminal
) -> None:
    """Judge the answers of every run in both wordings and print a row for each."""
    if len({run.resolve().name for run in runs}) < len(runs):
        raise UsageError(
            f"two runs have the same name; each keeps its verdicts under {options.out}. Calibrate them apart."
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
            comparison = asyncio.run(compare_prompts(pair, lambda phase, failure: advance(1)))
        if isinstance(comparison, str):
            failures.append(comparison)
        else:
            results.append(comparison)
    heads = ("benchmark", "judge", "answers", "verdicts", "same", "kappa", "own minus official, points")
    terminal.show(plain_table(*heads, rows=map(_wording_row, results)))
    for failure in failures:
        terminal.warn(failure)
    missing = sum(comparison.missing for comparison in results)
    if missing:
        terminal.warn(
            f"{missing} answers lack a grade in one of the wordings. Run the same command to try outages again."
        )
    brief = "\n".join(f"{comparison.kappa:.2f}\t{comparison.benchmark}" for comparison in results)
    terminal.close(
        [comparison.model_dump(mode="json") for comparison in results],
        f"the verdicts are in {options.out}.",
        brief=brief,
    )
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
    prices = (line for plan in plans for line in describe_prices(plan.judge_models, plan.prices))
    terminal.show(plain_table(*heads, rows=rows), *map(inert, dict.fromkeys(prices)))
    total = f"{sum(cost.dollars for _, cost in costs):.2f}"
    document = [{"benchmark": of.benchmark, "prompts": of.prompts, **cost.model_dump()} for of, cost in costs]
    terminal.close(document, f"no model was called. Known prices add up to ${total}.", brief=total)


def _calibrate_judge(file: Path, config: JudgeConfig, scaffold: str, *, terminal: Terminal, probe: bool) -> None:
    examples = read_examples(file)
    stage_set = stage_set_of((example.trajectory for example in examples), scaffold)

    async def calibrated() -> Calibration:
        async with open_judge(config, probe=probe, stage_set=stage_set) as built:
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
        "by_stage": {stage: agreement._asdict() for stage, agreement in result.by_stage},
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
    terminal.close(document, {"judge": config.judge, "examples": len(examples), "kappa": kappa}, brief=kappa)
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
        trajectory = row["trajectory"]
        rubric = row["rubric"]
        label = row["label"]
    except (ValueError, KeyError, TypeError, RecursionError) as cause:
        raise FileFormatError(f"{where} is not an example; it needs trajectory, rubric and label.") from cause
    is_named = isinstance(trajectory, str)
    text = read_text(folder / trajectory, f"the trajectory in {where}") if is_named else json.dumps(trajectory)
    attempt = load_trajectory(text, where)
    rubrics = read_rubrics(json.dumps([rubric]), where, attempt.scaffold.names)
    if not rubrics:
        raise FileFormatError(f"{where} has a rubric of weight 0; there is nothing to agree on.")
    with validating(where, "A label is 0, 1 or 2."):
        return LabelledExample(trajectory=attempt, rubric=rubrics[0], label=label)
