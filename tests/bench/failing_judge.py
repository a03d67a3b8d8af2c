"""A judge that fails in every way at random over a whole training run, beside one that never fails, in the almanac.

    python -m tests.bench.failing_judge --out runs/failing_judge [--rate 0.3] [--seeds 3] [--steps 12]

Each call fails with the chance --rate, in one of the ways that the protocols know, drawn anew. The table has the
held-out answers by truth at each evaluation, and how many rollouts the failures touched. A run of twelve steps takes
minutes on a CPU: never part of the tests. The same command resumes.
"""

import argparse
import asyncio
import sys
from pathlib import Path
from statistics import fmean

from rubricem_env.concurrency import open_generator
from rubricem_env.domain.base import Stage
from rubricem_env.judge.base import Contrast, Judge, Proposal, ScoringRequest, ScoringResult
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_records.runs.run_log import RunLog, read_log
from trainers.local.run import make_run
from trainers.local.settings import LocalConfig
from trainers.local.ssgrpo import train
from trainers.settings import read_settings

SCORE_FAILURES = ("outage", "answer only", "one stage lost", "half of the criteria lost")


class FailingJudge:
    """Another judge, of whose calls a share fails."""

    def __init__(self, judge: Judge, rate: float, seed: int) -> None:
        self._judge = judge
        self._rate = rate
        self._seed = seed
        self.name = f"failing {judge.name}"

    async def propose(self, contrast: Contrast) -> Proposal:
        draw = open_generator(self._seed, "propose", contrast.seed)
        if draw.random() < self._rate:
            return Proposal(failure="failed on purpose")
        return await self._judge.propose(contrast)

    async def score(self, request: ScoringRequest) -> ScoringResult:
        scored = await self._judge.score(request)
        draw = open_generator(self._seed, "score", request.seed)
        if draw.random() >= self._rate:
            return scored
        stages = {rubric.id: rubric.stage for rubric in request.rubrics}
        match SCORE_FAILURES[draw.integers(len(SCORE_FAILURES))]:
            case "outage":
                return ScoringResult(failure="failed on purpose")
            case "answer only":
                kept = {key for key in scored.rubric_scores if stages[key] == Stage.ANSWER}
            case "one stage lost":
                lost = list(Stage)[draw.integers(len(Stage))]
                kept = {key for key in scored.rubric_scores if stages[key] is not lost}
            case _:
                kept = {key for key in scored.rubric_scores if draw.random() < 0.5}
        rubric_scores = {key: rubric_score for key, rubric_score in scored.rubric_scores.items() if key in kept}
        only = all(stages[key] == Stage.ANSWER for key in kept) and len(kept) < len(scored.rubric_scores)
        return scored._replace(rubric_scores=rubric_scores, is_answer_only=only)


def run(out: Path, seed: int, *, steps: int, rate: float) -> RunLog:
    folder = out / f"rate-{rate:g}" / f"seed-{seed}"
    changes = [f"out={folder}", f"seed={seed}", f"steps={steps}", "judge={settings: {failure_limit: 1.0}}"]
    made = make_run(read_settings(Path("configs/demo_almanac.yaml"), LocalConfig, changes=changes))
    failing = FailingJudge(made.judge.judge, rate, seed)
    judge = StepJudge(failing, RubricBuffer(), settings=made.config.judge.settings)
    asyncio.run(train(made._replace(judge=judge) if rate else made))
    return read_log(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=0.3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    for rate in (options.rate, 0.0):
        logs = [run(options.out, seed, steps=options.steps, rate=rate) for seed in range(options.seeds)]
        for index, evaluation in enumerate(logs[0].evaluations):
            answers = [log.evaluations[index].held_out["answer"] for log in logs]
            each = ", ".join(f"{answer:.3f}" for answer in answers)
            sys.stdout.write(f"rate {rate:g}, step {evaluation.step}: {fmean(answers):.3f} ({each})\n")
        touched = fmean(line.fallbacks for log in logs for line in log.steps)
        trained = fmean(line.trained_rollouts for log in logs for line in log.steps)
        sys.stdout.write(f"rate {rate:g}: {touched:.1f} rollouts a step without a stage, {trained:.1f} trained on\n")


if __name__ == "__main__":
    main()
