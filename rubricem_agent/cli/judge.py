"""`rubricem judge`: score trajectory files of one question as a group.

A judged group as tables in a terminal: stages first, then each criterion with its marks and reasons.

A judge that says when it has marked an attempt, so that a person sees how far the judging is.

`rubricem calibrate`: how far a judge agrees with labelled examples.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from rubricem_agent.build.models import BuiltJudge, build_judge
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal, inert, plain_table
from rubricem_agent.config import JudgeConfig
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.judgement import Polarity, Rubric, StageScore
from rubricem_env.domain.trajectory import Query, Trajectory, first_problem, load_trajectory
from rubricem_env.judge.audit import Agreement, Calibration, LabelledExample, calibrate as run_calibration
from rubricem_env.judge.base import Contrast, Findings, Group, Judge, Proposal, ScoringRequest
from rubricem_env.judge.pipeline import StepJudge, describe_group
from rubricem_env.judge.rubrics import RubricBuffer, RubricSet, read_rubrics
from rubricem_env.judge.scoring import GroupJudgement, RolloutJudgement
from rubricem_env.llm.usage import Meter

_SHORT_NAME = 40


def print_group(
    judged: GroupJudgement, names: Sequence[str], *, rubrics: RubricSet, meter: Meter, console: Console
) -> None:
    """Print everything that the scores rest on."""
    console.print(_stage_table(judged, names))
    if not judged.rubrics:
        console.print(
            "No criterion: nothing separates the attempts, or there is only one. "
            "Give further attempts at the question, or --rubrics FILE."
        )
    for rubric in sorted(judged.rubrics, key=lambda rubric: STAGES.index(rubric.stage)):
        sign = "flaw" if rubric.polarity is Polarity.NEGATIVE else "quality"
        kind = ", persistent" if rubric.persistent else ""
        console.print(f"\n[bold]{rubric.stage}: {inert(rubric.title)}[/bold] ({sign}, weight {rubric.weight:g}{kind})")
        console.print(f"  {inert(rubric.description)}", style="dim")
        for name, rollout in zip(names, judged.rollouts, strict=True):
            opinion = next((o for o in rollout.opinions if o.rubric_id == rubric.id), None)
            if opinion is not None:
                console.print(f"  {opinion.mark:g}  {inert(_short(name))}: {inert(opinion.justification)}")
    _print_notes(judged, names, rubrics=rubrics, console=console)
    _print_cost(meter, console)


def brief_scores(judged: GroupJudgement, names: Sequence[str]) -> str:
    """A line an attempt: its four stage scores and its file, for a script to read."""
    rows = zip(names, judged.rollouts, strict=True)
    return "\n".join("\t".join([*_cells(rollout), name]) for name, rollout in rows)


def _stage_table(judged: GroupJudgement, names: Sequence[str]) -> Table:
    table = plain_table("trajectory", *(stage.value for stage in STAGES))
    for name, rollout in zip(names, judged.rollouts, strict=True):
        table.add_row(inert(_short(name)), *_cells(rollout))
    return table


def _cells(rollout: RolloutJudgement) -> list[str]:
    cells = []
    for stage in STAGES:
        outcome = rollout.judgement.outcome(stage)
        if isinstance(outcome, StageScore):
            cells.append(f"{outcome.score:.2f}{' (missing)' if outcome.missing else ''}")
        else:
            cells.append(outcome.reason.value)
    return cells


def _print_notes(judged: GroupJudgement, names: Sequence[str], *, rubrics: RubricSet, console: Console) -> None:
    notes = [f"not let in: {refused}" for refused in judged.refused]
    if judged.proposal_failure:
        notes.append(f"no new criteria: {judged.proposal_failure}")
    for name, rollout in zip(names, judged.rollouts, strict=True):
        if rollout.failure:
            notes.append(f"{_short(name)}: {rollout.failure}")
        if rollout.bait:
            notes.append(f"{_short(name)} holds text that is meant for a judge: {', '.join(rollout.bait)}")
    retired = len(rubrics.archive)
    if retired:
        notes.append(f"{retired} criteria retired after scoring, {len(rubrics.active)} kept for the next time")
    if notes:
        console.print()
    for note in notes:
        console.print(inert(note), style="dim")


def _print_cost(meter: Meter, console: Console) -> None:
    for phase, spent in sorted(meter.by_phase.items()):
        money = "price unknown" if spent.unpriced_calls else f"${spent.dollars:.4f}"
        usage = spent.usage
        console.print(
            f"{phase}: {usage.calls} calls, {usage.input_tokens} tokens in, {usage.output_tokens} out, {money}",
            highlight=False,
        )


def _short(name: str) -> str:
    return name if len(name) <= _SHORT_NAME else "…" + name[1 - _SHORT_NAME :]


class WatchedJudge:
    """Another judge's marks, unchanged."""

    def __init__(self, judge: Judge, on_marked: Callable[[int], None]) -> None:
        self._judge = judge
        self._on_marked = on_marked

    @property
    def name(self) -> str:
        return self._judge.name

    async def propose(self, contrast: Contrast) -> Proposal:
        return await self._judge.propose(contrast)

    async def score(self, examination: ScoringRequest) -> Findings:
        findings = await self._judge.score(examination)
        self._on_marked(1)
        return findings


JudgeOption = Annotated[str, typer.Option("--judge", help="rules, gemini:MODEL or openai:MODEL@URL.")]


class JudgeCommandResult(NamedTuple):
    """A judged group, its rubrics afterwards, and the judge that did it."""

    group: GroupJudgement
    rubrics: RubricSet
    built: BuiltJudge


def judge(
    files: Annotated[list[Path], typer.Argument(help="Trajectories of one question: JSON, or JSON lines.")],
    judge: JudgeOption = "rules",
    rubrics: Annotated[
        Path | None, typer.Option(help="Rubrics to score by as well: a JSON list, or one JSON object a line.")
    ] = None,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Score a group of trajectories stage by stage, criterion by criterion, with the reasons.

    Criteria come from contrast within the group and from --rubrics: rows of {"title", "description", "weight"} are
    answer criteria, a negative weight makes one a flaw; "stage" and "polarity" may be given instead.
    """
    group = _read_group(files)
    names = [name for name, _ in group]
    given = _read_rubric_file(rubrics) if rubrics is not None else ()
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    trajectories = [trajectory for _, trajectory in group]
    judged = asyncio.run(_judge(trajectories, given, config=JudgeConfig(judge=judge), terminal=terminal))
    print_group(judged.group, names, rubrics=judged.rubrics, meter=judged.built.meter, console=terminal.console)
    terminal.close(
        describe_group(judged.group, names, rubrics=judged.rubrics),
        {"trajectories": len(names), "criteria": len(judged.group.rubrics), "judge": judged.built.judge.name},
        brief=brief_scores(judged.group, names),
    )
    if judged.group.failures:
        terminal.warn(f"the judge gave no score for {judged.group.failures} of {len(names)} trajectories.")
        raise typer.Exit(1)


def _read_group(files: Sequence[Path]) -> list[tuple[str, Trajectory]]:
    """The trajectories of the files by name, all of one question.

    Raises:
        UsageError: a file is given twice, or two trajectories are of different questions.
        FileFormatError: a file cannot be read.
    """
    if len({file.resolve() for file in files}) < len(files):
        raise UsageError("a trajectory file is given twice; a group holds each attempt once.")
    group = [found for file in files for found in _read_file(file)]
    first_name, first = group[0]
    for name, trajectory in group:
        if not trajectory.question.strip():
            raise FileFormatError(f"{name} has no question; a judge needs to know what was asked.")
        if trajectory.query_key != first.query_key:
            raise UsageError(
                f"{name} is of another question than {first_name} ({trajectory.question[:60]!r} and "
                f"{first.question[:60]!r}); trajectories are contrasted within one question. Judge them apart."
            )
    return group


def _read_file(file: Path) -> list[tuple[str, Trajectory]]:
    """One trajectory, or one for each line of a JSON lines file."""
    try:
        rows = file.read_text(encoding="utf-8", errors="surrogatepass").split("\n")
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read {file}: {cause}. Give the path of a trajectory file.") from cause
    lines = [(number, row) for number, row in enumerate(rows, start=1) if row.strip()]
    if len(lines) < 2 or not all(row.startswith("{") and row.rstrip().endswith("}") for _, row in lines[:2]):
        return [(str(file), load_trajectory("\n".join(rows), str(file)))]
    return [(f"{file}:{number}", load_trajectory(row, f"{file}, line {number}")) for number, row in lines]


def _read_rubric_file(file: Path) -> tuple[Rubric, ...]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read {file}: {cause}. Give the path of a rubric file.") from cause
    return read_rubrics(text, str(file))


async def _judge(
    trajectories: Sequence[Trajectory], given: tuple[Rubric, ...], *, config: JudgeConfig, terminal: Terminal
) -> JudgeCommandResult:
    built = build_judge(config)
    first = trajectories[0]
    persistent = tuple(rubric for rubric in given if rubric.persistent)
    others = tuple(rubric for rubric in given if not rubric.persistent)
    query = Query(question=first.question, answer_format=first.answer_format, rubrics=persistent)
    # Given rubrics that can be retired begin as active ones, so that they compete with what the judge proposes.
    known = RubricSet().with_persistent(persistent).with_proposed(others, step=0)
    try:
        with terminal.bar(f"judging with {built.judge.name}", len(trajectories)) as on_marked:
            watched = WatchedJudge(built.judge, on_marked)
            step_judge = StepJudge(watched, RubricBuffer({query.key: known}), settings=config.settings)
            group = await step_judge.judge_group(Group.of(query, trajectories), step=0)
    finally:
        await built.aclose()
    return JudgeCommandResult(group, step_judge.buffer.rubrics(query.key), built)


_SHOWN_DISAGREEMENTS = 10


def calibrate(
    file: Annotated[Path, typer.Argument(help='JSON lines: {"trajectory": {...}, "rubric": {...}, "label": 0|1|2}.')],
    judge: Annotated[str, typer.Option("--judge", help="rules, gemini:MODEL or openai:MODEL@URL.")] = "rules",
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a judge over labelled examples and print its agreement with the labels.

    "trajectory" is an object as in a trajectory file, or the path of one beside FILE; "rubric" a row of a rubric file.
    """
    examples = read_examples(file)
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    found = asyncio.run(_calibrate(examples, JudgeConfig(judge=judge), terminal=terminal))
    _show(found, terminal)
    kappa = _calibration_cells(found.overall)[3]
    terminal.close(_describe(found), {"judge": judge, "examples": len(examples), "kappa": kappa}, brief=kappa)
    if found.unscored:
        raise typer.Exit(1)


def read_examples(file: Path) -> list[LabelledExample]:
    """The examples of a JSON lines file.

    Raises:
        FileFormatError: it cannot be read, is empty, or a line is no example.
    """
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read {file}: {cause}. Give the path of a file of labelled examples.") from cause
    examples = [
        _read_example(line, f"{file}, line {number}", folder=file.parent)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not examples:
        raise FileFormatError(f"{file} holds no example; each line is an object with trajectory, rubric and label.")
    return examples


def _read_example(line: str, where: str, *, folder: Path) -> LabelledExample:
    try:
        row = json.loads(line)
        trajectory, rubric, label = row["trajectory"], row["rubric"], row["label"]
    except (ValueError, KeyError, TypeError, RecursionError) as cause:
        raise FileFormatError(f"{where} is no example; it needs trajectory, rubric and label.") from cause
    if isinstance(trajectory, str):
        try:
            text = (folder / trajectory).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as cause:
            raise FileFormatError(f"{where} names the trajectory {trajectory!r:.60}, which cannot be read.") from cause
    else:
        text = json.dumps(trajectory)
    rubrics = read_rubrics(json.dumps([rubric]), where)
    if not rubrics:
        raise FileFormatError(f"{where} has a rubric of weight 0; there is nothing to agree on.")
    try:
        return LabelledExample(trajectory=load_trajectory(text, where), rubric=rubrics[0], label=label)
    except ValidationError as cause:
        raise FileFormatError(f"{where}: {first_problem(cause)} A label is 0, 1 or 2.") from cause


async def _calibrate(examples: list[LabelledExample], config: JudgeConfig, *, terminal: Terminal) -> Calibration:
    built = build_judge(config)
    try:
        with terminal.bar(f"marking with {built.judge.name}", len(examples)) as on_marked:
            return await run_calibration(WatchedJudge(built.judge, on_marked), examples)
    finally:
        await built.aclose()


def _describe(found: Calibration) -> dict[str, Any]:
    return {
        "overall": found.overall._asdict(),
        "by_stage": {stage.value: agreement._asdict() for stage, agreement in found.by_stage},
        "unscored": found.unscored,
        "disagreements": [row._asdict() for row in found.disagreements],
    }


def _show(found: Calibration, terminal: Terminal) -> None:
    table = plain_table("stage", "examples", "exact", "within one", "kappa", "bias")
    for name, agreement in (*((stage.value, own) for stage, own in found.by_stage), ("all", found.overall)):
        table.add_row(name, *_calibration_cells(agreement))
    terminal.show(table)
    if found.unscored:
        terminal.say(f"{found.unscored} examples got no mark from the judge")
    for row in found.disagreements[:_SHOWN_DISAGREEMENTS]:
        told = f"example {row.place + 1}, {row.title}: mark {row.mark}, label {row.label}. {row.justification}"
        terminal.show(f"[dim]{inert(told)}[/dim]")


def _calibration_cells(agreement: Agreement) -> tuple[str, ...]:
    shares = (agreement.exact, agreement.within_one, agreement.kappa)
    shown = tuple("-" if share is None else f"{share:.2f}" for share in shares)
    bias = "-" if agreement.bias is None else f"{agreement.bias:+.2f}"
    return (str(agreement.pairs), *shown, bias)
