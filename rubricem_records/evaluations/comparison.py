"""Compares two evaluations question by question."""

import numpy as np

from rubricem_records.evaluations.names import name_of
from rubricem_records.evaluations.scores import NO_JUDGE, JudgeScores, Scores
from rubricem_records.evaluations.statistics import RunComparison, paired_bootstrap


def compare(
    first: Scores, second: Scores, rng: np.random.Generator, *, across_judges: bool = False
) -> RunComparison | str | None:
    """Question by question, by the first judge of both; a sentence where no judge in the same words scored both.

    None where the runs are of two benchmarks or modes, or share no example.
    """
    if (first.manifest.benchmark, first.manifest.mode) != (second.manifest.benchmark, second.manifest.mode):
        return None
    if not (first.judges and second.judges):
        return None
    by_judge = {judge.judge: judge for judge in second.judges}
    ours = next((judge for judge in first.judges if judge.judge in by_judge), first.headline)
    theirs = by_judge.get(ours.judge, second.headline)
    if not ours.per_example.keys() & theirs.per_example.keys():
        return None
    names = (_judged_name(first, ours), _judged_name(second, theirs))
    notes = []
    if ours.judge != theirs.judge:
        notes.append(ACROSS_JUDGES)
    if first.manifest.has_own_prompts != second.manifest.has_own_prompts:
        notes.append(ACROSS_PROMPTS)
    if notes and not across_judges:
        lack = "no judge in common" if ours.judge != theirs.judge else "not been asked in the same words"
        return (
            f"not compared: {names[0]} and {names[1]} have {lack}, so that a difference would be the judges' as well. "
            "Judge both by one, or use --across-judges."
        )
    gap = paired_bootstrap(ours.per_example, theirs.per_example, rng=rng, names=names)
    return gap.model_copy(update={"note": "; ".join(notes)})


ACROSS_PROMPTS = "own and official judge prompts: not a difference of policies alone"

ACROSS_JUDGES = "two judges: not a difference of policies alone"


def _judged_name(run: Scores, judge: JudgeScores) -> str:
    return name_of(run) if judge.judge == NO_JUDGE else f"{name_of(run)}, judged by {judge.judge}"
