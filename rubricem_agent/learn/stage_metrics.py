"""Means by stage, for a step's line in the log."""

from collections.abc import Sequence

import numpy as np

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.judgement import Judgement
from rubricem_records.runs.log_lines import StageMetrics


def report_by_stage(sums: Sequence[Sequence[float]], stages: Sequence[str] = STAGES) -> dict[str, StageMetrics]:
    """Metrics of each stage that has tokens, by its name, from sums over a whole batch.

    `sums` are tokens, entropy, KL, clipped tokens and |loss_t|, each with a number for each stage.
    """
    whole = sum(sums[-1])
    return {
        str(stage): StageMetrics(
            tokens=int(count),
            entropy=entropy / count,
            kl=kl / count,
            clip_share=clipped / count,
            loss_share=magnitude / whole if whole > 0 else 0.0,
        )
        for stage, count, entropy, kl, clipped, magnitude in zip(stages, *sums, strict=True)
        if count
    }


def mean_by_stage(rows: Sequence[Sequence[float | None]], stages: Sequence[str] = STAGES) -> dict[str, float | None]:
    """The means of rows with a number for each stage; None for a stage without a number."""
    means: dict[str, float | None] = {}
    for place, stage in enumerate(stages):
        numbers = [value for row in rows if (value := row[place]) is not None]
        means[str(stage)] = round(float(np.mean(numbers)), 4) if numbers else None
    return means


def spread_shares(groups: Sequence[Sequence[Judgement]], stages: Sequence[str] = STAGES) -> dict[str, float]:
    """By stage: the share of judged groups whose scores of it differ. Without a spread no credit method can learn."""
    shares = {}
    for stage in stages:
        scores = ({judgement.score(stage) for judgement in group} - {None} for group in groups)
        shares[str(stage)] = float(np.mean([len(given) > 1 for given in scores])) if groups else 0.0
    return shares
