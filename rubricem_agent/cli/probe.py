"""`rubricem probe` looks for length bias in a finished run's judge, and for agreement with another judge."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from rubricem_agent.cli.command import AttemptsScaffoldOption, ProbeOption, command
from rubricem_agent.cli.judges import JudgeOption, agreement_cells, open_judge, stage_set_of
from rubricem_agent.cli.terminal import Terminal, inert, plain_table
from rubricem_agent.config.judge import JudgeConfig
from rubricem_env.concurrency import open_generator, run_together
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.stage_set import StageSet
from rubricem_env.judge.base import Judge, ScoringRequest, present_stages
from rubricem_env.judge.trust.agreement import Agreement, measure_agreement
from rubricem_env.judge.trust.length_bias import probe_length
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_records.rollouts.run_record import GroupEntry, RolloutEntry
from rubricem_viewer.record_reader import RunRecordReader

Recorded = tuple[GroupEntry, RolloutEntry]


@command
def probe(
    terminal: Terminal,
    run: Annotated[Path, typer.Argument(help="The folder of a finished run, with its record.")],
    judge: JudgeOption = "rules",
    scaffold: AttemptsScaffoldOption = "",
    sample: Annotated[int, typer.Option(min=1, help="Attempts that are scored again, drawn by --seed.")] = 40,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
    no_probe: ProbeOption = False,
) -> None:
    """Probe the judge of a finished run: does it pay for length, and does another judge agree with it?

    Every recorded attempt counts for the correlation of length and score. --judge scores a sample again, as it is and
    with empty words at the end of its answer; three calls an attempt. Name the run's own judge to probe that one.
    """
    recorded = read_attempts(run)
    generator = open_generator(seed, "probe", len(recorded))
    chosen = sorted(generator.choice(len(recorded), size=min(sample, len(recorded)), replace=False).tolist())
    attempts = [recorded[index] for index in chosen]
    stage_set = stage_set_of((entry.rollout.trajectory for _, entry in attempts), scaffold)
    padding, agreement = asyncio.run(
        _probe(attempts, JudgeConfig(judge=judge), stage_set=stage_set, probe=not no_probe)
    )
    length = length_correlation(recorded)
    own = ", ".join(sorted({group.judge for group, _ in recorded if group.judge})) or "unknown"
    cells = ["-" if value is None else f"{value:+.3f}" for value in (length, padding)]
    rows = [(inert(own), judge, str(len(recorded)), *cells, *agreement_cells(agreement))]
    heads = ("run's judge", "asked", "attempts", "length", "padding", "pairs", "exact", "within one", "kappa", "bias")
    terminal.show(plain_table(*heads, rows=rows))
    kappa = agreement_cells(agreement)[3]
    document = {
        "attempts": len(attempts),
        "length_correlation": length,
        "padding_gain": padding,
        "agreement": agreement._asdict(),
        "judges": own,
        "asked": judge,
    }
    terminal.close(document, {"judge": judge, "attempts": len(attempts), "kappa": kappa}, brief=kappa)


def read_attempts(run: Path) -> list[Recorded]:
    """Every recorded attempt that was judged stage by stage, with its group.

    Raises:
        UsageError: the run has no record of such an attempt.
    """
    reader = RunRecordReader(run)
    reader.refresh()
    recorded = []
    for number in range(len(reader.groups)):
        group = reader.read_group(number)
        entries = (reader.read_rollout(int(row)) for row in reader.table.of_group(number))
        recorded += [
            (group, entry) for entry in entries if entry.judged.rubric_scores and not entry.judged.is_answer_only
        ]
    if not recorded:
        raise UsageError(
            f"{run} has no record of judged attempts; give a run's folder that was trained with record: true."
        )
    return recorded


async def _probe(
    attempts: Sequence[Recorded], config: JudgeConfig, *, stage_set: StageSet, probe: bool
) -> tuple[float | None, Agreement]:
    """What empty words at an answer's end add to its score (0 is fair), and how far recorded and new scores agree."""
    async with open_judge(config, probe=probe, stage_set=stage_set) as built:
        results = await run_together(_probe_one(built.judge, group, entry) for group, entry in attempts)
    gains = [gain for gain, _ in results if gain is not None]
    return float(np.mean(gains)) if gains else None, measure_agreement([pair for _, pairs in results for pair in pairs])


async def _probe_one(
    judge: Judge, group: GroupEntry, entry: RolloutEntry
) -> tuple[float | None, list[tuple[int, int]]]:
    trajectory = entry.rollout.trajectory
    parsed = parse_trajectory(trajectory)
    there = present_stages(parsed)
    rubrics = tuple(rubric for rubric in group.rubrics if rubric.stage in there)
    (gain,) = await probe_length(judge, [trajectory], rubrics=group.rubrics)
    scores = await judge.score(ScoringRequest(group.question, parsed, rubrics))
    recorded = {score.rubric_id: score.rounded for score in entry.judged.rubric_scores}
    return gain, [
        (score, scores.rubric_scores[key].rounded) for key, score in recorded.items() if key in scores.rubric_scores
    ]


def length_correlation(recorded: Sequence[Recorded]) -> float | None:
    """Pearson's, of words and answer scores about the means of their groups; None without a spread of either."""
    groups: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
    for _, entry in recorded:
        score = entry.judged.judgement.score(entry.judged.judgement.last)
        answer = parse_trajectory(entry.rollout.trajectory).answer
        if score is not None and answer:
            groups[entry.step, entry.place].append((len(answer.split()), score))
    about = [np.array(rows) - np.mean(rows, axis=0) for rows in groups.values() if len(rows) > 1]
    if not about or (np.concatenate(about).std(axis=0) < 1e-9).any():
        return None
    words, scores = np.concatenate(about).T
    return float(np.corrcoef(words, scores)[0, 1])
