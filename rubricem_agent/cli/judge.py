"""`rubricem judge`: score trajectory files of one question as a group."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from rubricem_agent.build.judge import BuiltJudge, build_judge
from rubricem_agent.cli.judge_table import brief_scores, print_group
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal
from rubricem_agent.cli.watched_judge import WatchedJudge
from rubricem_agent.config.judge import JudgeConfig
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.query import Query
from rubricem_env.domain.rubric import Rubric
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.domain.trajectory_json import load_trajectory
from rubricem_env.judge.buffer import RubricBuffer
from rubricem_env.judge.group import Group
from rubricem_env.judge.outcomes import GroupJudgement
from rubricem_env.judge.report import describe_group
from rubricem_env.judge.rubric_file import read_rubrics
from rubricem_env.judge.rubric_set import RubricSet
from rubricem_env.judge.step import StepJudge

JudgeOption = Annotated[str, typer.Option("--judge", help="rules, gemini:MODEL or openai:MODEL@URL.")]


class Judged(NamedTuple):
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
) -> Judged:
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
    return Judged(group, step_judge.buffer.rubrics(query.key), built)
