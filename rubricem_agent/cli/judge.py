"""`rubricem judge`: score a group of trajectories stage by stage."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.command import ProbeOption, ScaffoldOption, command
from rubricem_agent.cli.judges import AskOptions, JudgeOption, WatchedJudge, open_judge
from rubricem_agent.cli.terminal import Terminal, inert, plain_table
from rubricem_agent.config.judge import JudgeConfig
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.inputs import read_text
from rubricem_env.domain.judgement import Rubric, StageScore
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet, read_stage_set
from rubricem_env.domain.trajectory import Query, Trajectory
from rubricem_env.judge.describe import describe_group
from rubricem_env.judge.group import Group
from rubricem_env.judge.judgements import GroupJudgement, RolloutJudgement
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.files import read_rubrics
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.rubrics.rubric_set import RubricSet
from rubricem_env.llm.usage import Meter
from rubricem_env.scaffold.claims import unfounded_claims
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_records.rollouts.attempts import read_file

_NAME_WIDTH = 40


@command
def judge(
    terminal: Terminal,
    files: Annotated[list[Path], typer.Argument(help="Trajectories of one question, or ATIF: JSON, or JSON lines.")],
    asking: AskOptions,
    judge: JudgeOption = "rules",
    rubrics: Annotated[
        Path | None, typer.Option(help="Further rubrics to score by: a JSON list, or one JSON object a line.")
    ] = None,
    scaffold: ScaffoldOption = DEEP_RESEARCH.name,
    no_probe: ProbeOption = False,
) -> None:
    """Score a group of trajectories stage by stage, criterion by criterion, with the reasons.

    Criteria come from contrast within the group and from --rubrics: rows of {"title", "description", "weight"} are
    answer criteria, a negative weight makes one a flaw; "stage" and "polarity" may be given instead. What tools showed
    is taken from the files; nothing is searched again. In a trajectory of another agent the calls are its research and
    the last message its answer; a plan and a review it has only where it wrote them in the scaffold's tags.
    """
    stage_set = read_stage_set(scaffold)
    group = _read_group(files)
    given = (
        read_rubrics(read_text(rubrics, "a rubric file"), str(rubrics), stage_set.scaffold.names)
        if rubrics is not None
        else ()
    )
    names = list(group)
    judged, rubric_set, meter, judge_name = asyncio.run(
        _judge(
            list(group.values()),
            given,
            config=asking.config(judge),
            stage_set=stage_set,
            terminal=terminal,
            probe=not no_probe,
        )
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
        attempts = read_file(file)
        for number, attempt in attempts.items():
            group[str(file) if len(attempts) == 1 else f"{file}:{number}"] = attempt.trajectory
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
    stage_set: StageSet,
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
    async with open_judge(config, probe=probe, stage_set=stage_set) as built:
        with terminal.bar(f"judging with {built.judge.name}", len(trajectories)) as advance:
            watched = WatchedJudge(built.judge, advance)
            buffer = RubricBuffer({query.key: known})
            step_judge = StepJudge(watched, buffer, settings=config.settings, stage_set=stage_set)
            group = await step_judge.judge_group(Group.of(query, trajectories), step=0)
    return group, step_judge.buffer.rubrics(query.key), built.meter, built.judge.name


def _show_group(
    judged: GroupJudgement, names: Sequence[str], *, rubrics: RubricSet, meter: Meter, terminal: Terminal
) -> None:
    """Print the stage scores, each criterion with its scores and reasons, notes and the cost."""
    stages = judged.judgements[0].stages
    short = [name if len(name) <= _NAME_WIDTH else "…" + name[1 - _NAME_WIDTH :] for name in names]
    rollouts = list(zip(short, judged.rollouts, strict=True))
    rows = [(inert(name), *_cells(rollout)) for name, rollout in rollouts]
    terminal.show(plain_table("trajectory", *stages, rows=rows))
    if not judged.rubrics:
        terminal.show(
            "No criterion: nothing separates the attempts, or there is only one. "
            "Give further attempts at the question, or --rubrics FILE."
        )
    for rubric in sorted(judged.rubrics, key=lambda rubric: stages.index(rubric.stage)):
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
    for model, price in meter.priced.items():
        terminal.show(inert(f"price of {model}: {price}"))


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
    outcomes = (rollout.judgement.outcome(stage) for stage in rollout.judgement.stages)
    return [
        f"{outcome.score:.2f}{' (missing)' if outcome.missing else ''}"
        if isinstance(outcome, StageScore)
        else outcome.reason
        for outcome in outcomes
    ]
